/* Connections of the in-memory queue manager: their open objects and their unit of work. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "memory.h"

enum { MAX_UNCOMMITTED = 10000, MAX_HANDLES = 65536 };

pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
char memory_qmgr[48];

/* ---- objects ------------------------------------------------------------------------------------------------------------------ */

outcome session_object(connection *c, MQHOBJ hobj, object **out) {
    session *s = c->session;
    if (hobj < 1 || (size_t)hobj > s->object_count || !s->objects[hobj - 1].type) return failed(RC_HOBJ);
    *out = &s->objects[hobj - 1];
    return done;
}

MQHOBJ session_handle(session *s) {
    for (size_t i = 0; i < s->object_count; i++)
        if (!s->objects[i].type) return (MQHOBJ)i + 1;
    if (s->object_count >= MAX_HANDLES) return 0;
    size_t wanted = s->object_count ? s->object_count * 2 : 8;
    object *grown = realloc(s->objects, wanted * sizeof *grown);
    if (!grown) return 0;
    memset(grown + s->object_count, 0, (wanted - s->object_count) * sizeof *grown);
    MQHOBJ first = (MQHOBJ)s->object_count + 1;
    s->objects = grown;
    s->object_count = wanted;
    return first;
}

/* ---- the unit of work ----------------------------------------------------------------------------------------------------------- */

outcome session_note(session *s, bool is_put, queue *q, message *m) {
    if (s->work_count >= MAX_UNCOMMITTED) return failed(RC_SYNCPOINT_LIMIT);
    if (s->work_count == s->work_room) {
        size_t wanted = s->work_room ? s->work_room * 2 : 64;
        work *grown = realloc(s->works, wanted * sizeof *grown);
        if (!grown) return failed(RC_STORAGE);
        s->works = grown;
        s->work_room = wanted;
    }
    s->works[s->work_count++] = (work){is_put, q, m};
    return done;
}

static void finish_unit(session *s, bool commit) {
    for (size_t i = 0; i < s->work_count; i++) {
        work *w = &s->works[i];
        if (w->is_put && commit) {
            queue_append(w->queue, w->message);
        } else if (!w->is_put && !commit) {
            w->message->md.BackoutCount++;
            queue_restore(w->queue, w->message);
        } else {
            message_free(w->message);
        }
    }
    s->work_count = 0;
}

static outcome memory_begin(connection *c) {
    (void)c;
    return warning(RC_NO_EXTERNAL_PARTICIPANTS);
}

static outcome memory_commit(connection *c) {
    session *s = c->session;
    pthread_mutex_lock(&memory_lock);
    bool lost = s->put_lost;
    finish_unit(s, !lost);
    s->put_lost = false;
    pthread_mutex_unlock(&memory_lock);
    return lost ? failed(RC_BACKED_OUT) : done;
}

static outcome memory_back_out(connection *c) {
    pthread_mutex_lock(&memory_lock);
    finish_unit(c->session, false);
    ((session *)c->session)->put_lost = false;
    pthread_mutex_unlock(&memory_lock);
    return done;
}

static outcome memory_status(connection *c, status_call *call) {
    session *s = c->session;
    pthread_mutex_lock(&memory_lock);
    s->status.type = call->type;
    s->status.object_type = MQOT_Q;
    *call = s->status;
    s->status = (status_call){0};
    pthread_mutex_unlock(&memory_lock);
    return done;
}

/* ---- connecting ------------------------------------------------------------------------------------------------------------------ */

/* MQGATE_MQI is `memory` or `memory:NAME`; a connection by another name is refused as a queue manager would. */
static void name_the_queue_manager(void) {
    const char *where = getenv("MQGATE_MQI"), *name = where && where[6] == ':' ? where + 7 : "MQGATE";
    if (!memory_qmgr[0]) field_set(memory_qmgr, 48, (view){(const unsigned char *)name, strlen(name)});
}

static outcome memory_connect(connection *c, connect_call *call) {
    pthread_mutex_lock(&memory_lock);
    name_the_queue_manager();
    pthread_mutex_unlock(&memory_lock);
    view asked = call->qmgr;
    if (asked.length && asked.data[0] == '*') asked = (view){asked.data + 1, asked.length - 1};
    if (asked.length && !(asked.length == field_length(memory_qmgr, 48) && !memcmp(asked.data, memory_qmgr, asked.length)))
        return failed(RC_QMGR_NAME);
    session *s = calloc(1, sizeof *s);
    if (!s) return failed(RC_STORAGE);
    field_set(s->user, sizeof s->user, call->user.length ? call->user : (view){(const unsigned char *)"mqgate", 6});
    memcpy(call->qmgr_name, memory_qmgr, 48);
    memcpy(c->qmgr, memory_qmgr, 48);
    unique_id(c, call->connection_id);
    c->session = s;
    return done;
}

static const MQLONG inputs = MQOO_INPUT_AS_Q_DEF | MQOO_INPUT_SHARED | MQOO_INPUT_EXCLUSIVE;

void queue_release(queue *q, bool input, bool remove) {
    *(input ? &q->inputs : &q->outputs) -= 1;
    if (input) q->exclusive = false;
    if (remove) q->deleted = true;
    bool last = !q->inputs && !q->outputs;
    if (last && (q->definition_type == MQQDT_TEMPORARY_DYNAMIC || q->deleted)) queue_delete(q);
}

static void close_object(object *o, MQLONG options) {
    bool both = (o->options & inputs) && (o->options & MQOO_OUTPUT);
    if (o->type == -1) subscription_close(o, options);
    if (o->type == MQOT_Q && both) o->queue->outputs--;
    if (o->type == MQOT_Q && (both || (o->options & (inputs | MQOO_OUTPUT)))) queue_release(o->queue, o->options & inputs, false);
    free(o->topic);
    *o = (object){0};
}

static outcome memory_disconnect(connection *c) {
    session *s = c->session;
    if (!s) return done;
    pthread_mutex_lock(&memory_lock);
    finish_unit(s, true);
    for (size_t i = 0; i < s->object_count; i++)
        if (s->objects[i].type) close_object(&s->objects[i], MQCO_NONE);
    pthread_mutex_unlock(&memory_lock);
    free(s->objects);
    free(s->works);
    free(s);
    c->session = NULL;
    return done;
}

static void memory_abandon(connection *c) {
    (void)c;
    pthread_mutex_init(&memory_lock, NULL);  /* another thread may have held it at the fork */
}

/* ---- MQOPEN, MQCLOSE --------------------------------------------------------------------------------------------------------------- */

static outcome dynamic_queue(open_call *call, queue **out) {
    static unsigned counter;
    char name[49] = {0}, prefix[49] = {0};
    memcpy(prefix, call->dynamic, field_length(call->dynamic, 48));
    char *star = strchr(prefix, '*');
    if (star) *star = 0;
    snprintf(name, sizeof name, star ? "%.33s%08X%04X" : "%.48s", prefix, (unsigned)getpid(), ++counter & 0xffff);
    field_set(call->name, 48, (view){(unsigned char *)name, strlen(name)});
    memcpy(call->qmgr, memory_qmgr, 48);
    return queue_find(call->name) ? failed(RC_OBJECT_IN_USE) : queue_make(call->name, MQQDT_TEMPORARY_DYNAMIC, out);
}

static outcome open_queue(open_call *call, object *o) {
    queue *q;
    MQLONG asked = call->options & inputs;
    if (asked & (asked - 1)) return failed(RC_OPTIONS);
    bool here = !field_length(call->qmgr, 48) || !memcmp(call->qmgr, memory_qmgr, 48);
    if (!here) return failed(RC_UNKNOWN_OBJECT_QMGR);
    bool model = field_is(call->name, 48, "SYSTEM.DEFAULT.MODEL.QUEUE");
    outcome r = model ? dynamic_queue(call, &q) : queue_open(call->name, &q);
    if (is_failed(r)) return r;
    bool wants_input = asked;
    if (wants_input && (q->exclusive || ((call->options & MQOO_INPUT_EXCLUSIVE) && q->inputs))) return failed(RC_OBJECT_IN_USE);
    q->inputs += wants_input;
    q->outputs += !!(call->options & MQOO_OUTPUT);
    q->exclusive = call->options & MQOO_INPUT_EXCLUSIVE;
    o->queue = q;
    memcpy(call->resolved_q, q->name, 48);
    memcpy(call->resolved_qmgr, memory_qmgr, 48);
    call->resolved_type = MQOT_Q;
    return done;
}

static outcome open_topic(open_call *call, object *o) {
    if (!call->object_string.length) return failed(field_length(call->name, 48) ? RC_UNKNOWN_OBJECT : RC_TOPIC_STRING);
    o->topic = strndup((const char *)call->object_string.data, call->object_string.length);
    if (!o->topic || !buffer_add(&call->resolved_string, o->topic, strlen(o->topic))) return failed(RC_STORAGE);
    memset(call->resolved_q, ' ', 48);
    memset(call->resolved_qmgr, ' ', 48);
    call->resolved_type = MQOT_TOPIC;
    return done;
}

static outcome open_kind(open_call *call, object *o) {
    switch (call->object_type) {
    case MQOT_Q: return open_queue(call, o);
    case MQOT_TOPIC: return open_topic(call, o);
    case MQOT_Q_MGR: return done;
    default: return failed(RC_OBJECT_TYPE);
    }
}

static outcome memory_open(connection *c, open_call *call) {
    object opened = {.type = call->object_type, .options = call->options};
    session *s = c->session;
    pthread_mutex_lock(&memory_lock);
    MQHOBJ hobj = session_handle(s);
    outcome o = hobj ? open_kind(call, &opened) : failed(RC_HANDLE_NOT_AVAILABLE);
    if (is_failed(o)) free(opened.topic);
    else s->objects[hobj - 1] = opened;
    call->hobj = hobj;
    pthread_mutex_unlock(&memory_lock);
    return o;
}

static bool in_unit(const session *s, const queue *q) {
    for (size_t i = 0; i < s->work_count; i++)
        if (s->works[i].queue == q) return true;
    return false;
}

static outcome close_checked(session *s, object *o, MQLONG options) {
    queue *q = o->type == MQOT_Q ? o->queue : NULL;
    bool remove = options & (MQCO_DELETE | MQCO_DELETE_PURGE);
    if (q && remove && q->definition_type == MQQDT_PREDEFINED) return failed(RC_OPTION_FOR_TYPE);
    if (q && (options & MQCO_DELETE) && q->depth) return failed(RC_Q_NOT_EMPTY);
    if (q && q->definition_type == MQQDT_TEMPORARY_DYNAMIC && in_unit(s, q)) return failed(RC_OBJECT_IN_USE);
    if (q && remove) q->deleted = true;
    close_object(o, options);
    return done;
}

static outcome memory_close(connection *c, MQHOBJ hobj, MQLONG options) {
    object *o;
    pthread_mutex_lock(&memory_lock);
    outcome r = session_object(c, hobj, &o);
    if (!is_failed(r)) r = close_checked(c->session, o, options);
    pthread_mutex_unlock(&memory_lock);
    return r;
}

const backend memory_backend = {
    .connect = memory_connect, .disconnect = memory_disconnect, .abandon = memory_abandon, .open = memory_open,
    .close = memory_close, .put = memory_put, .get = memory_get, .begin = memory_begin, .commit = memory_commit,
    .back_out = memory_back_out, .inquire = memory_inquire, .set = memory_set, .subscribe = memory_subscribe,
    .subscription_request = memory_subscription_request, .status = memory_status,
};
