/* A queue manager inside the process, for the benchmarks: it costs about two microseconds a call, so that what is measured is the
   program and the MQI library. It is linked into the library in place of the socket (see memory_library.py).

   One lock guards everything; a queue has a condition on which gets wait. There are local queues, priorities, expiry, browse,
   match by identifier and units of work. There are no properties on MQGET, topics, groups, authority or limits. */
#include <stdlib.h>
#include <time.h>

#include "mqm.h"

enum { PRIORITIES = 10 };

enum {
    RC_BACKED_OUT = 2003, RC_EXPIRY = 2013, RC_HANDLE_NOT_AVAILABLE = 2017, RC_SYNCPOINT_LIMIT = 2024,
    RC_MISSING_REPLY_TO_Q = 2027, RC_MSG_TYPE = 2029, RC_NO_CURSOR = 2034, RC_NOT_OPEN_FOR_BROWSE = 2036,
    RC_NOT_OPEN_FOR_INPUT = 2037, RC_NOT_OPEN_FOR_OUTPUT = 2039, RC_OBJECT_TYPE = 2043, RC_PERSISTENCE = 2047,
    RC_PRIORITY = 2050, RC_TRUNCATED = 2079, RC_NO_EXTERNAL_PARTICIPANTS = 2121, RC_NOT_SUPPORTED = 2298,
};

typedef struct message {
    struct message *next, *previous;
    MQMD md;
    uint64_t sequence;                       /* the order of arrival in the whole queue manager */
    int64_t deadline;                        /* milliseconds of the monotonic clock; 0: does not expire */
    MQLONG length;
    unsigned char data[];
} message;

typedef struct queue {
    struct queue *next;                      /* of the same bucket */
    char name[48];
    message *head[PRIORITIES], *tail[PRIORITIES];
    uint64_t removals;                       /* tells a browse cursor that its pointer may be stale */
    MQLONG depth;
    int waiters;
    pthread_cond_t arrived;
} queue;

typedef struct object {
    MQLONG type, options;                    /* type 0: a free entry */
    queue *queue;
    message *cursor;                         /* valid while queue->removals == seen */
    MQLONG cursor_priority;
    uint64_t cursor_sequence, seen;
    bool browsed;
} object;

typedef struct work {
    bool is_put;
    queue *queue;
    message *message;
} work;

typedef struct session {
    object *objects;
    size_t object_count;
    work *works;
    size_t work_count, work_room;
    status_call status;
    bool put_lost;                           /* an asynchronous put of this unit failed: MQCMIT backs out */
    char user[12];
} session;

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static char memory_qmgr[48];
static const char blanks[48] = "                                                ";

/* ---- queues: a doubly linked list for each priority, found by name ------------------------------------------------------------ */

enum { BUCKETS = 1024 };

static queue *buckets[BUCKETS];
static uint64_t arrivals;

static int64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static queue **bucket_of(const char name[48]) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 48; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return &buckets[hash % BUCKETS];
}

static queue *queue_find(const char name[48]) {
    for (queue *q = *bucket_of(name); q; q = q->next)
        if (!memcmp(q->name, name, 48)) return q;
    return NULL;
}

/* Any name is that of a queue: it is made when it is first opened, and stays. */
static outcome queue_open(const char name[48], queue **out) {
    queue *q = queue_find(name), **bucket = bucket_of(name);
    if (!q && (q = calloc(1, sizeof *q))) {
        pthread_condattr_t monotonic;
        memcpy(q->name, name, 48);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&q->arrived, &monotonic);
        pthread_condattr_destroy(&monotonic);
        q->next = *bucket;
        *bucket = q;
    }
    *out = q;
    return q ? done : failed(RC_STORAGE);
}

/* ---- order ------------------------------------------------------------------------------------------------------------------ */

static int lane(const message *m) {
    MQLONG priority = m->md.Priority;
    return priority < 0 ? 0 : priority >= PRIORITIES ? PRIORITIES - 1 : (int)priority;
}

static void link_before(queue *q, int p, message *m, message *next) {
    m->next = next;
    m->previous = next ? next->previous : q->tail[p];
    *(m->previous ? &m->previous->next : &q->head[p]) = m;
    *(next ? &next->previous : &q->tail[p]) = m;
    q->depth++;
    if (q->waiters) pthread_cond_broadcast(&q->arrived);
}

static void queue_append(queue *q, message *m) {
    m->sequence = ++arrivals;
    link_before(q, lane(m), m, NULL);
}

static void queue_restore(queue *q, message *m) {
    int p = lane(m);
    message *next = q->head[p];
    while (next && next->sequence < m->sequence) next = next->next;
    link_before(q, p, m, next);
}

static void queue_unlink(queue *q, message *m) {
    int p = lane(m);
    *(m->previous ? &m->previous->next : &q->head[p]) = m->next;
    *(m->next ? &m->next->previous : &q->tail[p]) = m->previous;
    q->depth--;
    q->removals++;
}

/* ---- finding ---------------------------------------------------------------------------------------------------------------- */

static const MQBYTE none[24];

static bool wanted(const message *m, const get_call *call) {
    const MQMD *md = &call->md;
    if ((call->match & MQMO_MATCH_MSG_TOKEN) && memcmp(call->token, &m->sequence, sizeof m->sequence)) return false;
    if ((call->match & MQMO_MATCH_MSG_ID) && memcmp(md->MsgId, none, 24) && memcmp(md->MsgId, m->md.MsgId, 24)) return false;
    if ((call->match & MQMO_MATCH_CORREL_ID) && memcmp(md->CorrelId, none, 24) && memcmp(md->CorrelId, m->md.CorrelId, 24)) return false;
    if (call->md_version < 2) return true;
    if ((call->match & MQMO_MATCH_GROUP_ID) && memcmp(md->GroupId, m->md.GroupId, 24)) return false;
    if ((call->match & MQMO_MATCH_MSG_SEQ_NUMBER) && md->MsgSeqNumber != m->md.MsgSeqNumber) return false;
    return !(call->match & MQMO_MATCH_OFFSET) || md->Offset == m->md.Offset;
}

static message *first_below(const queue *q, int p) {
    while (p >= 0 && !q->head[p]) p--;
    return p >= 0 ? q->head[p] : NULL;
}

static message *after(const queue *q, const message *m) { return m->next ? m->next : first_below(q, lane(m) - 1); }

/* The first message from `from` on (NULL: from the start) that the call asks for; expired ones found on the way go. */
static message *queue_match(queue *q, message *from, const get_call *call) {
    int64_t now = 0;
    message *m = from ? from : first_below(q, PRIORITIES - 1), *next;
    for (; m; m = next) {
        next = after(q, m);
        if (m->deadline && m->deadline <= (now ? now : (now = milliseconds()))) {
            queue_unlink(q, m);
            free(m);
        } else if (wanted(m, call)) {
            return m;
        }
    }
    return NULL;
}

/* What comes after a place in the queue's order, whether or not the message that was there still is. */
static message *queue_next(queue *q, MQLONG priority, uint64_t sequence) {
    int p = priority >= PRIORITIES ? PRIORITIES - 1 : priority < 0 ? 0 : (int)priority;
    message *m = q->head[p];
    while (m && m->sequence <= sequence) m = m->next;
    return m ? m : first_below(q, p - 1);
}

/* ---- connections -------------------------------------------------------------------------------------------------------------- */

enum { MAX_UNCOMMITTED = 10000, MAX_HANDLES = 65536 };

/* ---- objects ------------------------------------------------------------------------------------------------------------------ */

static outcome session_object(connection *c, MQHOBJ hobj, object **out) {
    session *s = c->session;
    if (hobj < 1 || (size_t)hobj > s->object_count || !s->objects[hobj - 1].type) return failed(RC_HOBJ);
    *out = &s->objects[hobj - 1];
    return done;
}

static MQHOBJ session_handle(session *s) {
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

static outcome session_note(session *s, bool is_put, queue *q, message *m) {
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
            free(w->message);
        }
    }
    s->work_count = 0;
}

outcome qm_begin(connection *c) {
    (void)c;
    return warning(RC_NO_EXTERNAL_PARTICIPANTS);
}

outcome qm_commit(connection *c) {
    session *s = c->session;
    pthread_mutex_lock(&memory_lock);
    bool lost = s->put_lost;
    finish_unit(s, !lost);
    s->put_lost = false;
    pthread_mutex_unlock(&memory_lock);
    return lost ? failed(RC_BACKED_OUT) : done;
}

outcome qm_back_out(connection *c) {
    pthread_mutex_lock(&memory_lock);
    finish_unit(c->session, false);
    ((session *)c->session)->put_lost = false;
    pthread_mutex_unlock(&memory_lock);
    return done;
}

outcome qm_status(connection *c, status_call *call) {
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

outcome qm_connect(connection *c, connect_call *call) {
    field_set(memory_qmgr, 48, call->qmgr);
    session *s = calloc(1, sizeof *s);
    if (!s) return failed(RC_STORAGE);
    field_set(s->user, sizeof s->user, call->user.length ? call->user : (view){(const unsigned char *)"mqgate", 6});
    memcpy(call->qmgr_name, memory_qmgr, 48);
    memcpy(c->qmgr, memory_qmgr, 48);
    unique_id(c, call->connection_id);
    c->session = s;
    return done;
}

outcome qm_disconnect(connection *c) {
    session *s = c->session;
    if (!s) return done;
    pthread_mutex_lock(&memory_lock);
    finish_unit(s, true);
    pthread_mutex_unlock(&memory_lock);
    free(s->objects);
    free(s->works);
    free(s);
    c->session = NULL;
    return done;
}

void qm_abandon(connection *c) {
    (void)c;
    pthread_mutex_init(&memory_lock, NULL);  /* another thread may have held it at the fork */
}

/* ---- MQOPEN, MQCLOSE --------------------------------------------------------------------------------------------------------------- */

outcome qm_open(connection *c, open_call *call) {
    object opened = {.type = call->object_type, .options = call->options};
    session *s = c->session;
    if (call->object_type != MQOT_Q && call->object_type != MQOT_Q_MGR) return failed(RC_OBJECT_TYPE);
    pthread_mutex_lock(&memory_lock);
    outcome o = call->object_type == MQOT_Q ? queue_open(call->name, &opened.queue) : done;
    if (!is_failed(o) && !(call->hobj = session_handle(s))) o = failed(RC_HANDLE_NOT_AVAILABLE);
    if (!is_failed(o)) {
        s->objects[call->hobj - 1] = opened;
        if (opened.queue) memcpy(call->resolved_q, opened.queue->name, 48);
        memcpy(call->resolved_qmgr, memory_qmgr, 48);
        call->resolved_type = call->object_type;
    }
    pthread_mutex_unlock(&memory_lock);
    return o;
}

outcome qm_close(connection *c, MQHOBJ hobj, MQLONG options) {
    object *o;
    (void)options;
    pthread_mutex_lock(&memory_lock);
    outcome r = session_object(c, hobj, &o);
    if (!is_failed(r)) *o = (object){0};
    pthread_mutex_unlock(&memory_lock);
    return r;
}

/* ---- put -------------------------------------------------------------------------------------------------------------------- */

static void stamp(MQMD *md) {
    static time_t stamped;                   /* the calendar is worked out once a second, under the lock */
    static char date[9], clock[7];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != stamped) {
        struct tm utc;
        gmtime_r(&now.tv_sec, &utc);
        strftime(date, sizeof date, "%Y%m%d", &utc);
        strftime(clock, sizeof clock, "%H%M%S", &utc);
        stamped = now.tv_sec;
    }
    int hundredths = (int)(now.tv_nsec / 10000000);
    memcpy(md->PutDate, date, 8);
    memcpy(md->PutTime, clock, 6);
    md->PutTime[6] = (char)('0' + hundredths / 10);
    md->PutTime[7] = (char)('0' + hundredths % 10);
}

static outcome check_descriptor(const MQMD *md) {
    if (md->Expiry < MQEI_UNLIMITED || md->Expiry == 0) return failed(RC_EXPIRY);
    if (md->Priority < MQPRI_PRIORITY_AS_Q_DEF) return failed(RC_PRIORITY);
    if (md->Persistence < 0 || md->Persistence > MQPER_PERSISTENCE_AS_Q_DEF) return failed(RC_PERSISTENCE);
    if (md->MsgType < 1) return failed(RC_MSG_TYPE);
    bool reply = md->MsgType == MQMT_REQUEST || (md->Report & (MQRO_COA | MQRO_COD | MQRO_EXCEPTION | MQRO_EXPIRATION));
    return reply && !field_length(md->ReplyToQ, sizeof md->ReplyToQ) ? failed(RC_MISSING_REPLY_TO_Q) : done;
}

static void set_context(connection *c, put_call *call) {
    session *s = c->session;
    MQMD *md = &call->md;
    if (!(call->options & (MQPMO_SET_IDENTITY_CONTEXT | MQPMO_SET_ALL_CONTEXT))) {
        memcpy(md->UserIdentifier, s->user, sizeof md->UserIdentifier);
        memset(md->AccountingToken, 0, sizeof md->AccountingToken);
        memset(md->ApplIdentityData, ' ', sizeof md->ApplIdentityData);
    }
    if (call->options & MQPMO_SET_ALL_CONTEXT) return;
    md->PutApplType = MQAT_UNIX;
    memcpy(md->PutApplName, c->application, sizeof md->PutApplName);
    memset(md->ApplOriginData, ' ', sizeof md->ApplOriginData);
    stamp(md);
}

static outcome complete(connection *c, put_call *call) {
    static const MQBYTE none[24];
    MQMD *md = &call->md;
    outcome o = check_descriptor(md);
    if (is_failed(o)) return o;
    if ((call->options & MQPMO_NEW_MSG_ID) || !memcmp(md->MsgId, none, 24)) unique_id(c, md->MsgId);
    if (call->options & MQPMO_NEW_CORREL_ID) unique_id(c, md->CorrelId);
    if (md->Priority == MQPRI_PRIORITY_AS_Q_DEF) md->Priority = 0;
    if (md->Persistence == MQPER_PERSISTENCE_AS_Q_DEF) md->Persistence = MQPER_NOT_PERSISTENT;
    if (md->CodedCharSetId == MQCCSI_Q_MGR) md->CodedCharSetId = 1208;
    md->BackoutCount = 0;
    if (field_length(md->ReplyToQ, 48) && !field_length(md->ReplyToQMgr, 48)) memcpy(md->ReplyToQMgr, memory_qmgr, 48);
    if (md->Encoding == 0) md->Encoding = MQENC_NATIVE;
    set_context(c, call);
    return md->Priority >= PRIORITIES ? warning(2049) : done;
}

static outcome put_on_queue(connection *c, queue *q, put_call *call, bool in_unit) {
    outcome o = complete(c, call);
    if (is_failed(o)) return o;
    message *m = malloc(sizeof *m + call->data.length);
    if (!m) return failed(RC_STORAGE);
    m->md = call->md;
    m->length = (MQLONG)call->data.length;
    m->deadline = m->md.Expiry == MQEI_UNLIMITED ? 0 : milliseconds() + (int64_t)m->md.Expiry * 100;
    if (call->data.length) memcpy(m->data, call->data.data, call->data.length);
    outcome stored = done;
    if (in_unit) stored = session_note(c->session, true, q, m);
    else queue_append(q, m);
    if (is_failed(stored)) {
        free(m);
        return stored;
    }
    memcpy(call->resolved_q, q->name, 48);
    memcpy(call->resolved_qmgr, memory_qmgr, 48);
    return o;
}

static outcome put1(connection *c, put_call *call, bool in_unit) {
    queue *q;
    if (call->target->object_type != MQOT_Q) return failed(RC_OBJECT_TYPE);
    outcome o = queue_open(call->target->name, &q);
    return is_failed(o) ? o : put_on_queue(c, q, call, in_unit);
}

static outcome put_on_object(connection *c, put_call *call, bool in_unit) {
    object *to;
    outcome o = session_object(c, call->hobj, &to);
    if (is_failed(o)) return o;
    if (!(to->options & MQOO_OUTPUT)) return failed(RC_NOT_OPEN_FOR_OUTPUT);
    return to->type == MQOT_Q ? put_on_queue(c, to->queue, call, in_unit) : failed(RC_HOBJ);
}

/* An asynchronous put that fails is only counted; MQSTAT tells, or MQCMIT. */
static outcome count_async(session *s, const put_call *call, outcome o) {
    status_call *status = &s->status;
    if (!is_failed(o)) {
        *(o.rc ? &status->warnings : &status->successes) += 1;
        return done;
    }
    status->failures++;
    if (call->options & MQPMO_SYNCPOINT) s->put_lost = true;
    if (!status->cc) {
        status->cc = o.cc;
        status->rc = o.rc;
        if (call->target) memcpy(status->name, call->target->name, 48);
    }
    return done;
}

outcome qm_put(connection *c, put_call *call) {
    bool in_unit = call->options & MQPMO_SYNCPOINT;
    pthread_mutex_lock(&memory_lock);
    outcome o = call->target ? put1(c, call, in_unit) : put_on_object(c, call, in_unit);
    if (call->options & MQPMO_ASYNC_RESPONSE) o = count_async(c->session, call, o);
    pthread_mutex_unlock(&memory_lock);
    return o;
}

/* ---- get -------------------------------------------------------------------------------------------------------------------- */

static const MQLONG browses = MQGMO_BROWSE_FIRST | MQGMO_BROWSE_NEXT | MQGMO_BROWSE_MSG_UNDER_CURSOR;
static const MQLONG not_offered = MQGMO_SET_SIGNAL | MQGMO_MARK_SKIP_BACKOUT | MQGMO_LOGICAL_ORDER | MQGMO_COMPLETE_MSG |
                                  MQGMO_ALL_MSGS_AVAILABLE | MQGMO_ALL_SEGMENTS_AVAILABLE;

static outcome check_get(const object *from, const get_call *call) {
    MQLONG browse = call->options & browses;
    if (call->options & not_offered) return failed(RC_NOT_SUPPORTED);
    if ((browse & (browse - 1)) || (browse && (call->options & MQGMO_MSG_UNDER_CURSOR))) return failed(RC_OPTIONS);
    if ((call->options & MQGMO_SYNCPOINT) && (call->options & MQGMO_NO_SYNCPOINT)) return failed(RC_OPTIONS);
    if (from->type != MQOT_Q) return failed(RC_HOBJ);
    if (browse && !(from->options & MQOO_BROWSE)) return failed(RC_NOT_OPEN_FOR_BROWSE);
    bool input = from->options & (MQOO_INPUT_AS_Q_DEF | MQOO_INPUT_SHARED | MQOO_INPUT_EXCLUSIVE);
    return browse || input ? done : failed(RC_NOT_OPEN_FOR_INPUT);
}

static message *under_cursor(object *from) {
    queue *q = from->queue;
    if (!from->browsed) return NULL;
    if (from->cursor && from->seen == q->removals) return from->cursor;
    message *m = queue_next(q, from->cursor_priority, from->cursor_sequence - 1);
    return m && m->sequence == from->cursor_sequence ? m : NULL;
}

static message *behind_cursor(object *from) {
    if (!from->browsed) return NULL;
    return queue_next(from->queue, from->cursor_priority, from->cursor_sequence);
}

static message *find_message(object *from, const get_call *call) {
    queue *q = from->queue;
    if (call->options & (MQGMO_MSG_UNDER_CURSOR | MQGMO_BROWSE_MSG_UNDER_CURSOR)) return under_cursor(from);
    if (!(call->options & MQGMO_BROWSE_NEXT) || !from->browsed) return queue_match(q, NULL, call);
    message *start = from->cursor && from->seen == q->removals && from->cursor->next ? from->cursor->next : behind_cursor(from);
    return start ? queue_match(q, start, call) : NULL;
}

static void set_cursor(object *from, message *m) {
    from->browsed = true;
    from->cursor = m;
    from->cursor_priority = m->md.Priority;
    from->cursor_sequence = m->sequence;
    from->seen = from->queue->removals;
}

static outcome wait_for(queue *q, int64_t deadline) {
    struct timespec until = {deadline / 1000, deadline % 1000 * 1000000};
    q->waiters++;
    int late = deadline < 0 ? pthread_cond_wait(&q->arrived, &memory_lock) : pthread_cond_timedwait(&q->arrived, &memory_lock, &until);
    q->waiters--;
    return late ? failed(RC_NO_MSG) : done;
}

static outcome find_or_wait(object *from, const get_call *call, message **out) {
    bool cursor = call->options & (MQGMO_MSG_UNDER_CURSOR | MQGMO_BROWSE_MSG_UNDER_CURSOR);
    int64_t deadline = call->wait == MQWI_UNLIMITED ? -1 : milliseconds() + call->wait;
    for (;;) {
        *out = find_message(from, call);
        if (*out) return done;
        if (cursor) return failed(RC_NO_CURSOR);
        if (!(call->options & MQGMO_WAIT) || (call->wait == 0)) return failed(RC_NO_MSG);
        outcome o = wait_for(from->queue, deadline);
        if (is_failed(o)) return o;
    }
}

static outcome fill(const message *m, get_call *call) {
    MQLONG fits = m->length < call->size ? m->length : call->size;
    call->md = m->md;
    if (fits) memcpy(call->room, m->data, (size_t)fits);
    call->data_length = m->length;
    call->returned = fits;
    memset(call->token, 0, sizeof call->token);
    memcpy(call->token, &m->sequence, sizeof m->sequence);
    if (m->deadline) {
        int64_t left = (m->deadline - milliseconds()) / 100;
        call->md.Expiry = left < 1 ? 1 : (MQLONG)left;
    }
    if (fits == m->length) return done;
    return warning(call->options & MQGMO_ACCEPT_TRUNCATED_MSG ? RC_TRUNCATED : RC_TRUNCATED_FAILED);
}

static outcome take(connection *c, object *from, message *m, const get_call *call) {
    bool in_unit = (call->options & MQGMO_SYNCPOINT) ||
                   ((call->options & MQGMO_SYNCPOINT_IF_PERSISTENT) && m->md.Persistence == MQPER_PERSISTENT);
    outcome o = in_unit ? session_note(c->session, false, from->queue, m) : done;
    if (is_failed(o)) return o;
    queue_unlink(from->queue, m);
    if (!in_unit) free(m);
    return done;
}

static outcome get_from(connection *c, object *from, get_call *call) {
    message *m;
    outcome o = find_or_wait(from, call, &m);
    if (is_failed(o)) return o;
    bool browse = call->options & browses;
    o = fill(m, call);
    memcpy(call->resolved_q, from->queue->name, 48);
    if (browse && !is_failed(o) && o.rc != RC_TRUNCATED_FAILED) set_cursor(from, m);
    if (is_failed(o) || browse || o.rc == RC_TRUNCATED_FAILED) return o;
    outcome taken = take(c, from, m, call);
    return is_failed(taken) ? taken : o;
}

outcome qm_get(connection *c, get_call *call) {
    object *from;
    pthread_mutex_lock(&memory_lock);
    outcome o = session_object(c, call->hobj, &from);
    if (!is_failed(o)) o = check_get(from, call);
    if (!is_failed(o)) o = get_from(c, from, call);
    pthread_mutex_unlock(&memory_lock);
    return o;
}

/* ---- attributes, and what is not offered ---------------------------------------------------------------------------------------- */

/* Integers that are not named here are 0. */
static MQLONG integer_attribute(const object *o, MQLONG selector) {
    switch (selector) {
    case MQIA_CURRENT_Q_DEPTH: return o->queue ? o->queue->depth : 0;
    case MQIA_MAX_Q_DEPTH: return 999999999;
    case MQIA_MAX_MSG_LENGTH: return 104857600;
    case MQIA_Q_TYPE: return MQQT_LOCAL;
    case MQIA_DEFINITION_TYPE: return MQQDT_PREDEFINED;
    case MQIA_SHAREABILITY: return 1;
    case MQIA_DEF_INPUT_OPEN_OPTION: return MQOO_INPUT_SHARED;
    case MQIA_CODED_CHAR_SET_ID: return 1208;
    case MQIA_COMMAND_LEVEL: return 940;
    case MQIA_PLATFORM: return MQPL_UNIX;
    case MQIA_MAX_PRIORITY: return PRIORITIES - 1;
    case MQIA_MAX_UNCOMMITTED_MSGS: return MAX_UNCOMMITTED;
    case MQIA_SYNCPOINT: return 1;
    default: return 0;
    }
}

static outcome inquire(const object *o, inquire_call *call) {
    MQLONG ints = 0, chars = 0;
    for (MQLONG i = 0; i < call->selector_count; i++) {
        MQLONG selector = call->selectors[i];
        if (selector <= MQIA_LAST) {
            if (ints >= call->int_count) return warning(RC_INT_ATTRS_TOO_SMALL);
            call->ints[ints++] = integer_attribute(o, selector);
            continue;
        }
        if (chars + 48 > call->char_length) return warning(RC_CHAR_ATTRS_TOO_SHORT);
        memcpy(call->chars + chars, selector == MQCA_Q_MGR_NAME ? memory_qmgr : blanks, 48);
        chars += 48;
    }
    return done;
}

outcome qm_inquire(connection *c, inquire_call *call) {
    object *o;
    pthread_mutex_lock(&memory_lock);
    outcome r = session_object(c, call->hobj, &o);
    if (!is_failed(r)) r = inquire(o, call);
    pthread_mutex_unlock(&memory_lock);
    return r;
}

outcome qm_set(connection *c, inquire_call *call) { return (void)c, (void)call, failed(RC_NOT_SUPPORTED); }
outcome qm_subscribe(connection *c, subscribe_call *call) { return (void)c, (void)call, failed(RC_NOT_SUPPORTED); }

outcome qm_subscription_request(connection *c, MQHOBJ hsub, MQLONG action, MQLONG *publications) {
    return (void)c, (void)hsub, (void)action, (void)publications, failed(RC_NOT_SUPPORTED);
}
