/* Publish and subscribe in the in-memory queue manager: filters with `#` and `+`, retained publications, managed queues. */
#include <stdio.h>
#include <stdlib.h>

#include "memory.h"

typedef struct retained {
    struct retained *next;
    char *topic;
    message *message;
} retained;

static subscription *subscriptions;
static retained *kept;

static bool topic_matches(const char *filter, const char *topic) {
    for (;;) {
        size_t want = strcspn(filter, "/"), have = strcspn(topic, "/");
        if (want == 1 && *filter == '#') return true;
        bool level = (want == 1 && *filter == '+') || (want == have && !memcmp(filter, topic, want));
        if (!level) return false;
        if (!filter[want] || !topic[have]) return (!filter[want] && !topic[have]) || !strcmp(filter + want, "/#");
        filter += want + 1;
        topic += have + 1;
    }
}

/* ---- publishing ----------------------------------------------------------------------------------------------------------------- */

static outcome deliver(connection *c, const subscription *s, const put_call *call, bool in_unit) {
    put_call copy = *call;
    message *m;
    unique_id(c, copy.md.MsgId);
    memcpy(copy.md.CorrelId, s->correl_id, sizeof copy.md.CorrelId);
    copy.md.PutApplType = MQAT_QMGR_PUBLISH;
    outcome o = message_make(&copy, c, &m);
    return is_failed(o) ? o : message_store(c, s->to, m, in_unit);
}

static outcome keep(const char *topic, const put_call *call, connection *c) {
    message *m = NULL;
    outcome o = call->data.length ? message_make(call, c, &m) : done;
    retained **link = &kept;
    while (*link && strcmp((*link)->topic, topic)) link = &(*link)->next;
    retained *r = *link;
    if (is_failed(o)) return o;
    if (!r && m) {
        r = calloc(1, sizeof *r);
        if (!r || !(r->topic = strdup(topic))) {
            free(r);
            message_free(m);
            return failed(RC_STORAGE);
        }
        *link = r;
    }
    if (r && r->message) message_free(r->message);
    if (r) r->message = m;
    return done;
}

outcome topic_publish(connection *c, const char *topic, put_call *call, bool in_unit) {
    bool any = false;
    outcome o = call->options & MQPMO_RETAIN ? keep(topic, call, c) : done;
    for (subscription *s = subscriptions; s && !is_failed(o); s = s->next) {
        if (!topic_matches(s->filter, topic)) continue;
        any = true;
        o = deliver(c, s, call, in_unit);
    }
    if (is_failed(o)) return failed(o.rc == RC_STORAGE ? o.rc : 2502);
    return !any && (call->options & MQPMO_WARN_IF_NO_SUBS_MATCHED) ? warning(RC_NO_SUBS_MATCHED) : done;
}

static MQLONG send_retained(connection *c, const subscription *s) {
    MQLONG count = 0;
    for (const retained *r = kept; r; r = r->next) {
        if (!r->message || !topic_matches(s->filter, r->topic)) continue;
        put_call call = {.md = r->message->md, .data = {r->message->data, (size_t)r->message->length},
                         .properties = r->message->properties};
        count += !is_failed(deliver(c, s, &call, false));
    }
    return count;
}

/* ---- subscribing ---------------------------------------------------------------------------------------------------------------- */

static subscription *by_name(view name) {
    for (subscription *s = subscriptions; s; s = s->next)
        if (s->name && strlen(s->name) == name.length && !memcmp(s->name, name.data, name.length)) return s;
    return NULL;
}

static void subscription_free(subscription *gone) {
    for (subscription **link = &subscriptions; *link; link = &(*link)->next)
        if (*link == gone) {
            *link = gone->next;
            break;
        }
    queue_release(gone->to, false, gone->managed);
    free(gone->filter);
    free(gone->name);
    free(gone);
}

void subscription_close(object *o, MQLONG options) {
    subscription *s = o->subscription;
    if (!s->name || (options & MQCO_REMOVE_SUB)) subscription_free(s);
    else s->owner = 0;
}

static outcome destination(connection *c, const subscribe_call *call, queue **out) {
    static unsigned counter;
    char name[49];
    object *o;
    if (!(call->options & MQSO_MANAGED)) {
        outcome r = session_object(c, call->hobj, &o);
        if (is_failed(r)) return r;
        *out = o->queue;
        return o->type == MQOT_Q ? done : failed(RC_HOBJ);
    }
    snprintf(name, sizeof name, "SYSTEM.MANAGED.%s.%08X", call->options & MQSO_DURABLE ? "DURABLE" : "NDURABLE", ++counter);
    char padded[48];
    field_set(padded, sizeof padded, (view){(unsigned char *)name, strlen(name)});
    return queue_make(padded, call->options & MQSO_DURABLE ? MQQDT_PERMANENT_DYNAMIC : MQQDT_TEMPORARY_DYNAMIC, out);
}

static outcome create(connection *c, subscribe_call *call, subscription **out) {
    bool durable = call->options & MQSO_DURABLE;
    if (durable && !call->sub_name.length) return failed(RC_SUB_NAME);
    if (!call->object_string.length) return failed(RC_TOPIC_STRING);
    queue *to;
    outcome o = destination(c, call, &to);
    if (is_failed(o)) return o;
    subscription *s = calloc(1, sizeof *s);
    if (!s) return failed(RC_STORAGE);
    s->filter = strndup((const char *)call->object_string.data, call->object_string.length);
    s->name = durable ? strndup((const char *)call->sub_name.data, call->sub_name.length) : NULL;
    s->to = to;
    to->outputs++;  /* the queue stays as long as anything is delivered to it */
    s->managed = call->options & MQSO_MANAGED;
    if (call->options & MQSO_SET_CORREL_ID) memcpy(s->correl_id, call->correl_id, 24);
    else unique_id(c, s->correl_id);
    s->next = subscriptions;
    subscriptions = s;
    *out = s;
    return done;
}

static outcome find_or_create(connection *c, subscribe_call *call, subscription **out) {
    subscription *old = call->sub_name.length ? by_name(call->sub_name) : NULL;
    if (old && !(call->options & (MQSO_RESUME | MQSO_ALTER))) return failed(RC_SUB_EXISTS);
    if (!old && !(call->options & MQSO_CREATE)) return failed(call->options & MQSO_RESUME ? RC_NO_SUBSCRIPTION : RC_OPTIONS);
    *out = old;
    if (!old) return create(c, call, out);
    return old->owner ? failed(2429) : done;  /* in use by another handle */
}

static outcome handles(connection *c, subscribe_call *call, subscription *s) {
    session *own = c->session;
    if (s->managed) {
        call->hobj = session_handle(own);
        if (!call->hobj) return failed(RC_HANDLE_NOT_AVAILABLE);
        s->to->inputs++;
        own->objects[call->hobj - 1] = (object){.type = MQOT_Q, .options = MQOO_INPUT_SHARED | MQOO_BROWSE | MQOO_INQUIRE, .queue = s->to};
    }
    call->hsub = session_handle(own);
    if (!call->hsub) return failed(RC_HANDLE_NOT_AVAILABLE);
    own->objects[call->hsub - 1] = (object){.type = -1, .subscription = s};
    s->owner = c->handle;
    return done;
}

outcome memory_subscribe(connection *c, subscribe_call *call) {
    subscription *s;
    pthread_mutex_lock(&memory_lock);
    outcome o = find_or_create(c, call, &s);
    if (!is_failed(o)) o = handles(c, call, s);
    if (!is_failed(o)) {
        memcpy(call->correl_id, s->correl_id, 24);
        call->options |= (s->managed ? MQSO_MANAGED : 0) | (s->name ? MQSO_DURABLE : 0);
        if (!buffer_text(&call->resolved_string, s->filter)) o = failed(RC_STORAGE);
        if (!(call->options & (MQSO_NEW_PUBLICATIONS_ONLY | MQSO_PUBLICATIONS_ON_REQUEST))) send_retained(c, s);
    }
    pthread_mutex_unlock(&memory_lock);
    return o;
}

outcome memory_subscription_request(connection *c, MQHOBJ hsub, MQLONG action, MQLONG *publications) {
    object *o;
    pthread_mutex_lock(&memory_lock);
    outcome r = session_object(c, hsub, &o);
    if (!is_failed(r) && o->type != -1) r = failed(RC_HOBJ);
    if (!is_failed(r) && action != MQSR_ACTION_PUBLICATION) r = failed(RC_OPTIONS);
    if (!is_failed(r)) *publications = send_retained(c, o->subscription);
    pthread_mutex_unlock(&memory_lock);
    return r;
}
