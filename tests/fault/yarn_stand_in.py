"""A YARN of one host for tests: the protocols of resource manager and node manager, spoken by Hadoop's own RPC servers.

Hadoop's servers themselves are in no package that tests can install; the protocols' records and RPC come with pyspark.
So what Spark does on YARN is Spark's own code (client, application master, executors in containers), and scheduling is
this: every container asked for is given, at once, on this host. Nothing is limited, secured or recovered.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from free_ports import free_port

MEMORY, CORES = 4096, 4
YARN_SITE = """<configuration>
<property><name>fs.defaultFS</name><value>file:///</value></property>
<property><name>yarn.resourcemanager.hostname</name><value>127.0.0.1</value></property>
<property><name>yarn.resourcemanager.address</name><value>127.0.0.1:{client}</value></property>
<property><name>yarn.resourcemanager.scheduler.address</name><value>127.0.0.1:{scheduler}</value></property>
<property><name>yarn.resourcemanager.webapp.address</name><value>127.0.0.1:{web}</value></property>
</configuration>
"""


class Protocol:
    """What Java sees of one of our services."""

    def __init__(self, cluster: YarnStandIn, interface: str) -> None:
        self._cluster = cluster
        self.Java = type("Java", (), {"implements": [interface]})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._cluster, f"on_{name}")


class YarnStandIn:
    """See the module. A context manager; `configuration` is the folder for HADOOP_CONF_DIR."""

    def __init__(self, folder: Path, java_home: Path) -> None:
        self.folder, self.java_home = folder, java_home
        self.configuration = folder / "conf"
        self.ports = {name: free_port() for name in ("client", "scheduler", "node", "web")}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.state, self.final, self.said, self.address = "NEW", "UNDEFINED", "", ("", 0)
        self.started = 0
        self.told: set[str] = set()

    # ---- start and end

    def __enter__(self) -> Self:
        import pyspark
        from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

        self.configuration.mkdir(parents=True)
        for name in ("yarn-site.xml", "core-site.xml"):
            (self.configuration / name).write_text(YARN_SITE.format(**self.ports))
        jars = Path(pyspark.__file__).parent / "jars"
        self._log = (self.folder / "stand-in.log").open("w")
        port, self.java = launch_gateway(
            jarpath=str(next(jars.glob("py4j*.jar"))), classpath=f"{self.configuration}:{jars}/*", die_on_exit=True,
            java_path=str(self.java_home / "bin/java"), javaopts=["-Xmx256m"], return_proc=True,
            redirect_stdout=self._log, redirect_stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auto_convert=True),
            callback_server_parameters=CallbackServerParameters(port=0),
        )
        server = self.gateway.java_gateway_server
        ours = self.gateway.get_callback_server().get_listening_port()
        server.resetCallbackClient(server.getCallbackClient().getAddress(), ours)
        self.jvm = self.gateway.jvm
        self._serve()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.gateway.shutdown()
        self.java.kill()
        self.java.wait()
        self._log.close()

    def _serve(self) -> None:
        conf = self.jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        rpc = self.jvm.org.apache.hadoop.yarn.ipc.YarnRPC.create(conf)
        for name, port in (
            ("ApplicationClientProtocol", "client"), ("ApplicationMasterProtocol", "scheduler"),
            ("ContainerManagementProtocol", "node"),
        ):  # fmt: skip
            interface = f"org.apache.hadoop.yarn.api.{name}"
            address = self.jvm.java.net.InetSocketAddress("127.0.0.1", self.ports[port])
            kind = self.jvm.java.lang.Class.forName(interface)
            rpc.getServer(kind, Protocol(self, interface), address, conf, None, 4).start()
        self.application = self._records.ApplicationId.newInstance(int(time.time() * 1000), 1)
        self.attempt = self._records.ApplicationAttemptId.newInstance(self.application, 1)
        self.node = self._records.NodeId.newInstance("127.0.0.1", self.ports["node"])

    @property
    def _records(self) -> Any:
        return self.jvm.org.apache.hadoop.yarn.api.records

    @property
    def _answers(self) -> Any:
        return self.jvm.org.apache.hadoop.yarn.api.protocolrecords

    def _new(self, kind: str) -> Any:
        whole = f"org.apache.hadoop.yarn.api.{kind}"
        return self.jvm.org.apache.hadoop.yarn.util.Records.newRecord(self.jvm.java.lang.Class.forName(whole))

    def _most(self) -> Any:
        return self._records.Resource.newInstance(MEMORY, CORES)

    # ---- what a client asks

    def on_getClusterMetrics(self, _request: Any) -> Any:
        return self._answers.GetClusterMetricsResponse.newInstance(self._records.YarnClusterMetrics.newInstance(1))

    def on_getNewApplication(self, _request: Any) -> Any:
        least = self._records.Resource.newInstance(1, 1)
        return self._answers.GetNewApplicationResponse.newInstance(self.application, least, self._most())

    def on_submitApplication(self, request: Any) -> Any:
        context = request.getApplicationSubmissionContext()
        self.state = "ACCEPTED"
        self._launch(self._container(self.attempt, context.getResource()).getId(), context.getAMContainerSpec())
        return self._answers.SubmitApplicationResponse.newInstance()

    def on_getApplicationReport(self, _request: Any) -> Any:
        first = next(iter(self.processes.values()), None)
        if self.state in ("ACCEPTED", "RUNNING") and first is not None and first.poll() not in (None, 0):
            self.state, self.final, self.said = "FAILED", "FAILED", f"the master ended with {first.returncode}"
        report = self._new("records.ApplicationReport")
        report.setApplicationId(self.application)
        report.setCurrentApplicationAttemptId(self.attempt)
        report.setYarnApplicationState(self._records.YarnApplicationState.valueOf(self.state))
        report.setFinalApplicationStatus(self._records.FinalApplicationStatus.valueOf(self.final))
        report.setDiagnostics(self.said)
        for name in ("User", "Queue", "Name", "TrackingUrl", "OriginalTrackingUrl", "ApplicationType"):
            getattr(report, f"set{name}")("test")
        report.setHost(self.address[0] or "N/A")
        report.setRpcPort(self.address[1])
        return self._answers.GetApplicationReportResponse.newInstance(report)

    def on_forceKillApplication(self, _request: Any) -> Any:
        self.state, self.final = "KILLED", "KILLED"
        return self._answers.KillApplicationResponse.newInstance(True)

    # ---- what an application master asks

    def on_registerApplicationMaster(self, request: Any) -> Any:
        self.state, self.address = "RUNNING", (request.getHost(), request.getRpcPort())
        answer = self._new("protocolrecords.RegisterApplicationMasterResponse")
        answer.setMaximumResourceCapability(self._most())
        answer.setQueue("default")
        return answer

    def on_allocate(self, request: Any) -> Any:
        answer = self._new("protocolrecords.AllocateResponse")
        answer.setResponseId(request.getResponseId() + 1)
        answer.setAvailableResources(self._most())
        answer.setNumClusterNodes(1)
        given = []
        for ask in request.getAskList():
            if ask.getResourceName() == "*":
                given += [self._given(ask) for _ in range(ask.getNumContainers())]
        answer.setAllocatedContainers(given)
        answer.setCompletedContainersStatuses(self._ended())
        if given:
            answer.setNMTokens([self._records.NMToken.newInstance(self.node, self._token("NMToken", "node"))])
        return answer

    def on_finishApplicationMaster(self, request: Any) -> Any:
        self.final, self.said = request.getFinalApplicationStatus().toString(), request.getDiagnostics() or ""
        self.state = "FINISHED"
        return self._answers.FinishApplicationMasterResponse.newInstance(True)

    def _ended(self) -> list[Any]:
        """Containers that have ended since somebody asked."""
        ended = []
        for number, (name, process) in enumerate(list(self.processes.items()), 1):
            if name not in self.told and process.poll() is not None:
                self.told.add(name)
                container = self._records.ContainerId.newContainerId(self.attempt, number)
                state = self._records.ContainerState.COMPLETE
                ended.append(self._records.ContainerStatus.newInstance(container, state, "", process.returncode & 255))
        return ended

    def _given(self, ask: Any) -> Any:
        container = self._container(self.attempt, ask.getCapability())
        container.setPriority(ask.getPriority())
        container.setAllocationRequestId(ask.getAllocationRequestId())
        return container

    def _container(self, attempt: Any, resource: Any) -> Any:
        self.started += 1
        container = self._new("records.Container")
        container.setId(self._records.ContainerId.newContainerId(attempt, self.started))
        container.setNodeId(self.node)
        container.setNodeHttpAddress(f"127.0.0.1:{self.ports['web']}")
        container.setResource(resource)
        container.setContainerToken(self._token("ContainerToken", str(self.started)))
        return container

    def _token(self, kind: str, identifier: str) -> Any:
        service = f"127.0.0.1:{self.ports['node']}"
        return self._records.Token.newInstance(bytearray(identifier.encode()), kind, bytearray(b"-"), service)

    # ---- what a node is asked

    def on_startContainers(self, request: Any) -> Any:
        done = []
        for start in request.getStartContainerRequests():
            identifier = start.getContainerToken().getIdentifier()
            number = int(bytes(identifier.array()).decode()[identifier.position() :] or 0)
            container = self._records.ContainerId.newContainerId(self.attempt, number)
            self._launch(container, start.getContainerLaunchContext())
            done.append(container)
        return self._answers.StartContainersResponse.newInstance({}, done, {})

    def on_stopContainers(self, request: Any) -> Any:
        return self._answers.StopContainersResponse.newInstance(list(request.getContainerIds()), {})

    def _launch(self, container: Any, context: Any) -> None:
        name = container.toString()
        work = self.folder / "containers" / name
        (work / "tmp").mkdir(parents=True)
        for entry in context.getLocalResources().entrySet():
            self._localize(entry.getValue(), work / entry.getKey())
        lines = [f'export {key}="{value}"' for key, value in self._environment(name, work, context).items()]
        lines.append(" ".join(context.getCommands()))
        script = work / "launch_container.sh"
        script.write_text("\n".join(_expanded(line, work) for line in lines) + "\n")
        inherited = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "USER", "LANG")}
        self.processes[name] = subprocess.Popen(
            ["/bin/bash", str(script)], cwd=work, env=inherited, start_new_session=True
        )

    def kill_container(self, number: int) -> None:
        """As a node manager does, or the kernel: the whole container."""
        process = list(self.processes.values())[number]
        os.killpg(process.pid, signal.SIGKILL)

    def _environment(self, name: str, work: Path, context: Any) -> dict[str, str]:
        ours = {
            "CONTAINER_ID": name, "NM_HOST": "127.0.0.1", "NM_PORT": str(self.ports["node"]),
            "NM_HTTP_PORT": str(self.ports["web"]), "LOCAL_DIRS": str(work / "tmp"), "LOG_DIRS": str(work),
            "JAVA_HOME": str(self.java_home), "HADOOP_CONF_DIR": str(self.configuration), "USER": "test",
            "APP_SUBMIT_TIME_ENV": str(int(time.time() * 1000)), "APPLICATION_WEB_PROXY_BASE": "/proxy",
        }  # fmt: skip
        return ours | {entry.getKey(): entry.getValue() for entry in context.getEnvironment().entrySet()}

    @staticmethod
    def _localize(resource: Any, target: Path) -> None:
        source = Path(resource.getResource().getFile())
        if resource.getType().toString() == "ARCHIVE":
            kind = "zip" if source.suffix in (".zip", ".jar") else None
            shutil.unpack_archive(source, target, kind)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def _expanded(line: str, work: Path) -> str:
    """As a node manager writes them into the script that starts a container."""
    line = line.replace("<LOG_DIR>", str(work)).replace("<CPS>", ":")
    return line.replace("{{", "$").replace("}}", "")
