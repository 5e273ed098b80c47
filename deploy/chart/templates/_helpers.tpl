{{- define "mqgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "mqgate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "mqgate.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "mqgate.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "mqgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mqgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mqgate.labels" -}}
{{ include "mqgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "mqgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "mqgate.fullname" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "mqgate.image" -}}
{{- $registry := default .Values.image.registry .Values.global.imageRegistry }}
{{- $name := ternary (printf "%s/%s" $registry .Values.image.repository) .Values.image.repository (ne $registry "") }}
{{- if .Values.image.digest }}{{ $name }}@{{ .Values.image.digest }}{{ else }}{{ $name }}:{{ default .Chart.AppVersion .Values.image.tag }}{{ end }}
{{- end }}

{{- define "mqgate.ibm" -}}{{ if eq .Values.queueManager.backend "ibm" }}true{{ end }}{{- end }}
{{- define "mqgate.stateful" -}}{{ if or (ne .Values.queueManager.backend "ibm") .Values.queueManager.buffer.enabled }}true{{ end }}{{- end }}
{{- define "mqgate.kind" -}}{{ if include "mqgate.stateful" . }}StatefulSet{{ else }}Deployment{{ end }}{{- end }}
{{- define "mqgate.several" -}}{{ if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) }}true{{ end }}{{- end }}
{{- define "mqgate.secret" -}}{{ include "mqgate.fullname" . }}-credentials{{- end }}
{{- define "mqgate.adminScheme" -}}{{ ternary "https" "http" (not (empty .Values.admin.tls.existingSecret)) }}{{- end }}

{{- define "mqgate.tlsSecret" -}}{{ default (printf "%s-tls" (include "mqgate.fullname" .)) .Values.tls.existingSecret }}{{- end }}
{{- define "mqgate.usesTls" -}}{{ if or .Values.listeners.mqtts.enabled .Values.listeners.wss.enabled }}true{{ end }}{{- end }}
{{- define "mqgate.mappings" -}}{{ default (printf "%s-mappings" (include "mqgate.fullname" .)) .Values.mappings.existingConfigMap }}{{- end }}
{{- define "mqgate.hasMappings" -}}{{ if or .Values.mappings.files .Values.mappings.existingConfigMap }}true{{ end }}{{- end }}
{{- define "mqgate.usesMqClient" -}}{{ if and (include "mqgate.ibm" .) (or .Values.queueManager.ibm.client.image .Values.queueManager.ibm.client.existingClaim) }}true{{ end }}{{- end }}

{{/* Whether extraVolumeMounts has the working directory: two mounts of one place are refused. */}}
{{- define "mqgate.mountsState" -}}{{ range .Values.extraVolumeMounts }}{{ if eq (trimSuffix "/" (tpl .mountPath $)) "/var/lib/mqgate" }}true{{ end }}{{ end }}{{- end }}

{{/* A size, as Kubernetes or the gateway writes it, in bytes. */}}
{{- define "mqgate.bytes" -}}
{{- $units := dict "" 1 "K" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 }}
{{- $text := toString . }}
{{- printf "%.0f" (mulf (regexFind "^[0-9.]+" $text) (index $units (regexFind "[A-Za-z]*$" $text | trimSuffix "B"))) }}
{{- end }}

{{/* Room in an emptyDir, whose limit the gateway does not see: it sees the node's disk, and who writes more is evicted and loses everything. The rest is for what the journal's limit does not count. */}}
{{- define "mqgate.room" -}}{{ printf "%.0f" (floor (mulf 0.75 (include "mqgate.bytes" .Values.persistence.emptyDirSize))) }}{{- end }}

{{/* Values that contradict each other and run all the same: an installation is refused, an upgrade of what has run with them is warned by NOTES.txt. */}}
{{- define "mqgate.contradictions" -}}
{{- $v := .Values }}
{{- if and $v.tls.existingSecret (not (include "mqgate.usesTls" .)) }}
tls.existingSecret is for listeners.mqtts and listeners.wss, and neither is enabled: devices would connect without TLS.
{{- end }}
{{- if and $v.tls.existingSecret $v.tls.certManager.enabled }}
tls.existingSecret and tls.certManager.enabled exclude each other: cert-manager would write over the certificate in that Secret. Leave one of them out.
{{- end }}
{{- if and (include "mqgate.ibm" .) $v.queueManager.buffer.enabled $v.persistence.enabled (not $v.settings.queue_manager) (gt (float64 (include "mqgate.bytes" $v.queueManager.buffer.maxBytes)) (float64 (include "mqgate.bytes" $v.persistence.size))) }}
queueManager.buffer.maxBytes ({{ $v.queueManager.buffer.maxBytes }}) is more than persistence.size ({{ $v.persistence.size }}): the volume would be full first.
{{- end }}
{{- end }}

{{/* Mistakes that would only show at run time. */}}
{{- define "mqgate.validate" -}}
{{- $v := .Values }}
{{- if and (include "mqgate.several" .) (not (include "mqgate.ibm" .)) }}
{{- fail "An embedded queue manager belongs to one pod. Set replicaCount: 1 and autoscaling.enabled: false, or queueManager.backend: ibm." }}
{{- end }}
{{- if include "mqgate.ibm" . }}
{{- $_ := required "queueManager.backend is ibm: set queueManager.ibm.connection to host(port)." $v.queueManager.ibm.connection }}
{{- $_ := required "queueManager.backend is ibm: set queueManager.ibm.channel to a server-connection channel." $v.queueManager.ibm.channel }}
{{- if and $v.queueManager.ibm.user (not $v.queueManager.ibm.existingSecret) }}
{{- fail "queueManager.ibm.user needs queueManager.ibm.existingSecret, a Secret with the key `password`." }}
{{- end }}
{{- if and $v.queueManager.ibm.existingSecret (not $v.queueManager.ibm.user) (not $v.settings.queue_manager) (not $v.extraEnv) (not $v.extraEnvFrom) }}
{{- fail "queueManager.ibm.existingSecret is the password of queueManager.ibm.user: set it too." }}
{{- end }}
{{- if and (or $v.queueManager.ibm.tls.existingSecret $v.queueManager.ibm.tls.certificateLabel) (not $v.queueManager.ibm.tls.cipher) (not $v.settings.queue_manager) (not $v.extraEnv) (not $v.extraEnvFrom) }}
{{- fail "queueManager.ibm.tls is without effect as long as queueManager.ibm.tls.cipher is empty: set it to the channel's SSLCIPH." }}
{{- end }}
{{- else if $v.queueManager.buffer.enabled }}
{{- fail "queueManager.buffer is for queueManager.backend: ibm; the embedded queue manager is never away." }}
{{- end }}
{{- if and (include "mqgate.ibm" .) $v.queueManager.buffer.enabled (not $v.persistence.enabled) (gt (float64 (include "mqgate.bytes" $v.queueManager.buffer.maxBytes)) (float64 (include "mqgate.room" .))) }}
{{- fail "queueManager.buffer.maxBytes may be three quarters of persistence.emptyDirSize: a pod that writes more than that is evicted, and its messages are lost." }}
{{- end }}
{{- if and (include "mqgate.usesTls" .) (not $v.tls.existingSecret) (not $v.tls.certManager.enabled) }}
{{- fail "The TLS listeners need a certificate: set tls.existingSecret, or tls.certManager.enabled with an issuerRef." }}
{{- end }}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) }}
{{- fail "tls.certManager.enabled needs tls.certManager.issuerRef.name." }}
{{- end }}
{{- if and $v.listeners.proxyProtocol (not $v.listeners.proxyFrom) }}
{{- fail "listeners.proxyProtocol needs listeners.proxyFrom, the addresses of the load balancers whose headers are believed." }}
{{- end }}
{{- if and $v.listeners.websocketAddressHeader (not $v.listeners.proxyFrom) }}
{{- fail "listeners.websocketAddressHeader needs listeners.proxyFrom, the addresses of the ingress controllers whose header is believed." }}
{{- end }}
{{- if and $v.listeners.websocketAddressHeader (not (or $v.listeners.ws.enabled $v.listeners.wss.enabled)) }}
{{- fail "listeners.websocketAddressHeader is for listeners.ws and listeners.wss, and neither is enabled." }}
{{- end }}
{{- if and $v.service.externalTrafficPolicy (eq $v.service.type "ClusterIP") }}
{{- fail "service.externalTrafficPolicy is for service.type: LoadBalancer or NodePort; no traffic from outside comes to a ClusterIP." }}
{{- end }}
{{- if and $v.service.loadBalancerSourceRanges (ne $v.service.type "LoadBalancer") }}
{{- fail "service.loadBalancerSourceRanges is for service.type: LoadBalancer; networkPolicy.clients says who may come otherwise." }}
{{- end }}
{{- if and (ne $v.tls.clientCertificates "none") (not $v.tls.clientCaSecret) }}
{{- fail "tls.clientCertificates needs tls.clientCaSecret, a Secret with the key `ca.crt`." }}
{{- end }}
{{- if and (ne $v.tls.clientCertificates "none") (not (include "mqgate.usesTls" .)) (not $v.settings.listeners) }}
{{- fail "tls.clientCertificates is for listeners.mqtts and listeners.wss, and neither is enabled: nobody would be asked for a certificate." }}
{{- end }}
{{- if and (not $v.auth.anonymous) (not $v.auth.user) (not $v.auth.passwordFileSecret) (eq $v.tls.clientCertificates "none") (not $v.settings.security) (not $v.settings.listeners) (not $v.extraEnv) (not $v.extraEnvFrom) }}
{{- fail "Nobody could connect: set auth.user, auth.passwordFileSecret, settings.security (ldap, jwt, webhook, managed), or auth.anonymous: true." }}
{{- end }}
{{- range $name, $_ := $v.mappings.files }}
{{- if and (or (hasSuffix ".yml" $name) (not (contains "." $name))) (not $v.settings.mappings) }}
{{- fail (printf "mappings.files: `%s` would not be read: name it `%s.yaml`." $name (trimSuffix ".yml" $name)) }}
{{- end }}
{{- end }}
{{- if le (int $v.terminationGracePeriodSeconds) (add (int $v.drain.preStopSeconds) (int $v.drain.timeoutSeconds)) }}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be longer than drain.preStopSeconds + drain.timeoutSeconds (%d)." (int $v.terminationGracePeriodSeconds) (add (int $v.drain.preStopSeconds) (int $v.drain.timeoutSeconds))) }}
{{- end }}
{{- $none := true }}
{{- range list $v.listeners.mqtt $v.listeners.mqtts $v.listeners.ws $v.listeners.wss }}{{ if .enabled }}{{ $none = false }}{{ end }}{{ end }}
{{- if $none }}{{ fail "No listener is enabled: devices could not connect." }}{{ end }}
{{- if and $v.metrics.serviceMonitor.enabled (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
{{- fail "metrics.serviceMonitor needs the Prometheus operator, which this cluster does not have." }}
{{- end }}
{{- if and $v.metrics.prometheusRule.enabled (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}
{{- fail "metrics.prometheusRule needs the Prometheus operator, which this cluster does not have." }}
{{- end }}
{{- with include "mqgate.contradictions" . | trim }}
{{- if $.Release.IsInstall }}{{ fail . }}{{ end }}
{{- end }}
{{- if and $v.tls.certManager.enabled (not (.Capabilities.APIVersions.Has "cert-manager.io/v1")) }}
{{- fail "tls.certManager needs cert-manager, which this cluster does not have." }}
{{- end }}
{{- end }}

{{/* The settings file: what the values say, with `settings` merged over it. */}}
{{- define "mqgate.settings" -}}
{{- $v := .Values }}
{{- $tls := dict "certificate" "/etc/mqgate/tls/tls.crt" "key" "/etc/mqgate/tls/tls.key" }}
{{- if ne $v.tls.clientCertificates "none" }}
{{- $_ := set $tls "client_ca" "/etc/mqgate/client-ca/ca.crt" }}
{{- $_ := set $tls "client_certificate" $v.tls.clientCertificates }}
{{- end }}
{{- $web := dict "path" $v.listeners.websocketPath "origins" $v.listeners.websocketOrigins "hosts" $v.listeners.websocketHosts }}
{{- if $v.listeners.websocketAddressHeader }}{{ $_ := set $web "address_header" $v.listeners.websocketAddressHeader }}{{ end }}
{{- $listeners := list }}
{{- range $each := list (dict "name" "mqtt" "port" 1883) (dict "name" "mqtts" "port" 8883 "tls" $tls) (dict "name" "ws" "port" 8083 "websocket" $web) (dict "name" "wss" "port" 8084 "tls" $tls "websocket" $web) }}
{{- if (index $v.listeners $each.name).enabled }}
{{- $listener := merge (dict "bind" "0.0.0.0") $each }}
{{- $named := and $each.websocket $v.listeners.websocketAddressHeader }}
{{- if and $v.listeners.proxyProtocol (not $named) }}{{ $_ := set $listener "proxy_protocol" $v.listeners.proxyProtocol }}{{ end }}
{{- if or $v.listeners.proxyProtocol $named }}{{ $_ := set $listener "proxy_from" $v.listeners.proxyFrom }}{{ end }}
{{- $listeners = append $listeners $listener }}
{{- end }}
{{- end }}
{{- $admin := dict "port" 9160 "bind" "0.0.0.0" "token_file" "/etc/mqgate/admin/token" "hosts" (concat (list (printf "%s-admin" (include "mqgate.fullname" .)) (printf "%s-admin.%s" (include "mqgate.fullname" .) .Release.Namespace) (printf "%s-admin.%s.svc" (include "mqgate.fullname" .) .Release.Namespace)) $v.admin.hosts) }}
{{- if $v.admin.tls.existingSecret }}
{{- $_ := set $admin "tls" (dict "certificate" "/etc/mqgate/admin-tls/tls.crt" "key" "/etc/mqgate/admin-tls/tls.key") }}
{{- else }}
{{- $_ := set $admin "insecure" true }}
{{- end }}
{{- $manager := dict }}
{{- if include "mqgate.ibm" . }}
{{- $ibm := dict "name" $v.queueManager.ibm.name "connection" $v.queueManager.ibm.connection "channel" $v.queueManager.ibm.channel "connections" (int $v.queueManager.ibm.connections) "lease" $v.queueManager.ibm.lease "driver" $v.queueManager.ibm.driver }}
{{- if $v.queueManager.ibm.user }}
{{- $_ := set $ibm "user" $v.queueManager.ibm.user }}
{{- $_ := set $ibm "password_file" "/etc/mqgate/mq/password" }}
{{- end }}
{{- if $v.queueManager.ibm.tls.cipher }}
{{- $mqTls := dict "cipher" $v.queueManager.ibm.tls.cipher }}
{{- if $v.queueManager.ibm.tls.existingSecret }}{{ $_ := set $mqTls "key_repository" (printf "/etc/mqgate/mq-tls/%s" $v.queueManager.ibm.tls.keyRepository) }}{{ end }}
{{- if $v.queueManager.ibm.tls.certificateLabel }}{{ $_ := set $mqTls "certificate_label" $v.queueManager.ibm.tls.certificateLabel }}{{ end }}
{{- $_ := set $ibm "tls" $mqTls }}
{{- end }}
{{- $_ := set $manager "ibm" $ibm }}
{{- if $v.queueManager.buffer.enabled }}
{{- $_ := set $manager "buffer" (dict "path" "/var/lib/mqgate/buffer" "max_bytes" $v.queueManager.buffer.maxBytes) }}
{{- end }}
{{- else }}
{{- $_ := set $manager "embedded" (dict "name" $v.queueManager.embedded.name "path" "/var/lib/mqgate/data" "objects" "/etc/mqgate/settings/objects.mqsc") }}
{{- if not $v.persistence.enabled }}{{ $_ := set $manager.embedded "max_bytes" (include "mqgate.room" . | int64) }}{{ end }}
{{- end }}
{{- $security := dict "anonymous" $v.auth.anonymous }}
{{- if $v.auth.user }}{{ $_ := set $security "users" (dict $v.auth.user (dict "password_file" "/etc/mqgate/auth/password")) }}{{ end }}
{{- if $v.auth.passwordFileSecret }}{{ $_ := set $security "password_file" "/etc/mqgate/users/users" }}{{ end }}
{{- $_ := set $security "client_ids" $v.auth.clientIds }}
{{- $_ := set $security "guesses" (dict "per_user" (int $v.auth.guesses.perUser) "per_address" (int $v.auth.guesses.perAddress) "within" $v.auth.guesses.within) }}
{{- $settings := dict "listeners" $listeners "admin" $admin "queue_manager" $manager "security" $security "log" (dict "format" "json") }}
{{- $process := dict "drain_timeout" (printf "%ds" (int $v.drain.timeoutSeconds)) }}
{{- if $v.drain.rate }}{{ $_ := set $process "drain_rate" (int $v.drain.rate) }}{{ end }}
{{- if eq $v.mappings.reload "watch" }}{{ $_ := set $process "watch_interval" (printf "%ds" (int $v.mappings.watchSeconds)) }}{{ end }}
{{- $_ := set $settings "process" $process }}
{{- if include "mqgate.hasMappings" . }}{{ $_ := set $settings "mappings" (list "/etc/mqgate/mappings/*.yaml") }}{{ end }}
{{- toYaml (mergeOverwrite $settings (deepCopy $v.settings)) }}
{{- end }}

{{- define "mqgate.ports" -}}
{{- $targets := dict "mqtt" 1883 "mqtts" 8883 "ws" 8083 "wss" 8084 }}
{{- range $name := list "mqtt" "mqtts" "ws" "wss" }}
{{- if (index $.Values.listeners $name).enabled }}
- {name: {{ $name }}, containerPort: {{ index $targets $name }}, protocol: TCP}
{{- end }}
{{- end }}
{{- end }}
