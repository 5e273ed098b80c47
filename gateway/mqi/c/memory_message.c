/* Putting and getting in the in-memory queue manager. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "memory.h"

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
    bool identity = call->options & (MQPMO_SET_IDENTITY_CONTEXT | MQPMO_SET_ALL_CONTEXT);
    object *from;
    if ((call->options & (MQPMO_PASS_IDENTITY_CONTEXT | MQPMO_PASS_ALL_CONTEXT)) && call->context > 0 &&
        !is_failed(session_object(c, call->context, &from)) && from->has_context) {
        memcpy(md->UserIdentifier, from->context.UserIdentifier, sizeof md->UserIdentifier);
        memcpy(md->AccountingToken, from->context.AccountingToken, sizeof md->AccountingToken);
        memcpy(md->ApplIdentityData, from->context.ApplIdentityData, sizeof md->ApplIdentityData);
        identity = true;
    }
    if (!identity) {
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

outcome message_make(const put_call *call, const connection *c, message **out) {
    (void)c;
    message *m = malloc(sizeof *m + call->data.length);
    if (!m) return failed(RC_STORAGE);
    m->md = call->md;
    m->length = (MQLONG)call->data.length;
    m->properties = (buffer){0};
    m->deadline = m->md.Expiry == MQEI_UNLIMITED ? 0 : milliseconds() + (int64_t)m->md.Expiry * 100;
    if (call->data.length) memcpy(m->data, call->data.data, call->data.length);
    if (call->properties.length && !buffer_add(&m->properties, call->properties.data, call->properties.length)) {
        free(m);
        return failed(RC_STORAGE);
    }
    *out = m;
    return done;
}

outcome message_store(connection *c, queue *q, message *m, bool in_unit) {
    outcome o = done;
    if (q->inhibit_put) o = failed(RC_PUT_INHIBITED);
    else if (q->depth >= q->max_depth) o = failed(RC_Q_FULL);
    else if (m->length > q->max_length) o = failed(RC_MSG_TOO_BIG_FOR_Q);
    else if (in_unit) o = session_note(c->session, true, q, m);
    else queue_append(q, m);
    if (is_failed(o)) message_free(m);
    return o;
}

static outcome put_on_queue(connection *c, queue *q, put_call *call, bool in_unit) {
    message *m;
    outcome o = complete(c, call);
    if (is_failed(o)) return o;
    if (q->definition_type == MQQDT_TEMPORARY_DYNAMIC && call->md.Persistence == MQPER_PERSISTENT) return failed(2048);
    outcome made = message_make(call, c, &m);
    if (!is_failed(made)) made = message_store(c, q, m, in_unit);
    if (is_failed(made)) return made;
    memcpy(call->resolved_q, q->name, 48);
    memcpy(call->resolved_qmgr, memory_qmgr, 48);
    return o;
}

static outcome put_on_topic(connection *c, const char *topic, put_call *call, bool in_unit) {
    outcome o = complete(c, call);
    if (is_failed(o)) return o;
    memset(call->resolved_q, ' ', 48);
    memset(call->resolved_qmgr, ' ', 48);
    outcome published = topic_publish(c, topic, call, in_unit);
    return is_failed(published) || published.rc ? published : o;
}

static outcome put1(connection *c, put_call *call, bool in_unit) {
    const open_call *target = call->target;
    queue *q;
    if (target->object_type == MQOT_TOPIC) {
        char *topic = strndup((const char *)target->object_string.data, target->object_string.length);
        outcome o = topic ? put_on_topic(c, topic, call, in_unit) : failed(RC_TOPIC_STRING);
        free(topic);
        return o;
    }
    if (target->object_type != MQOT_Q) return failed(RC_OBJECT_TYPE);
    outcome o = queue_open(target->name, &q);
    return is_failed(o) ? o : put_on_queue(c, q, call, in_unit);
}

static outcome put_on_object(connection *c, put_call *call, bool in_unit) {
    object *to;
    outcome o = session_object(c, call->hobj, &to);
    if (is_failed(o)) return o;
    if (!(to->options & MQOO_OUTPUT)) return failed(RC_NOT_OPEN_FOR_OUTPUT);
    if (to->type == MQOT_TOPIC) return put_on_topic(c, to->topic, call, in_unit);
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

outcome memory_put(connection *c, put_call *call) {
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
        if (from->queue->inhibit_get) return failed(RC_GET_INHIBITED);
        *out = find_message(from, call);
        if (*out) return done;
        if (cursor) return failed(RC_NO_CURSOR);
        if (!(call->options & MQGMO_WAIT) || (call->wait == 0)) return failed(RC_NO_MSG);
        outcome o = wait_for(from->queue, deadline);
        if (is_failed(o)) return o;
    }
}

/* The data as this getter sees it: properties in the handle, as an MQRFH2 in front, or not at all. */
static outcome present(const message *m, get_call *call, buffer *with_header, view *data) {
    static const MQLONG modes = MQGMO_PROPERTIES_FORCE_MQRFH2 | MQGMO_NO_PROPERTIES | MQGMO_PROPERTIES_IN_HANDLE | MQGMO_PROPERTIES_COMPATIBILITY;
    property_list list = {0};
    outcome o = done;
    size_t header = 0;
    MQLONG mode = call->options & modes;
    *data = (view){m->data, (size_t)m->length};
    bool handle = call->has_handle && (mode == 0 || mode == MQGMO_PROPERTIES_IN_HANDLE);
    bool own_header = field_is(m->md.Format, 8, "MQHRF2") && !m->properties.length;
    if (handle && own_header) {
        if (!is_failed(rfh2_parse(*data, m->md.Encoding, &list, &header, &call->md))) {
            *data = (view){data->data + header, data->length - header};
            if (!properties_pack(&list, &call->properties)) o = failed(RC_STORAGE);
        }
    } else if (m->properties.length && handle) {
        if (!buffer_add(&call->properties, m->properties.data, m->properties.length)) o = failed(RC_STORAGE);
    } else if (m->properties.length && mode != MQGMO_NO_PROPERTIES) {
        if (!properties_unpack(&list, buffer_view(&m->properties))) o = failed(RC_UNEXPECTED);
        else if (mode == MQGMO_PROPERTIES_FORCE_MQRFH2 || rfh2_wanted(&list)) o = rfh2_build(&list, &m->md, with_header);
    }
    call->in_handle = handle;
    properties_clear(&list);
    if (is_failed(o) || !with_header->length) return o;
    if (!buffer_add(with_header, m->data, (size_t)m->length)) return failed(RC_STORAGE);
    *data = buffer_view(with_header);
    memcpy(call->md.Format, "MQHRF2  ", 8);
    call->md.Encoding = MQENC_NATIVE;
    call->md.CodedCharSetId = 1208;
    return done;
}

static outcome fill(const message *m, get_call *call) {
    buffer with_header = {0};
    view data;
    MQLONG version = call->md_version;
    call->md = m->md;
    outcome o = present(m, call, &with_header, &data);
    if (!is_failed(o)) {
        size_t fits = data.length < (size_t)call->size ? data.length : (size_t)call->size;
        if (fits) memcpy(call->room, data.data, fits);
        call->data_length = (MQLONG)data.length;
        call->returned = (MQLONG)fits;
        if (fits < data.length) o = warning(call->options & MQGMO_ACCEPT_TRUNCATED_MSG ? RC_TRUNCATED : RC_TRUNCATED_FAILED);
    }
    call->md_version = version;
    buffer_free(&with_header);
    memset(call->token, 0, sizeof call->token);
    memcpy(call->token, &m->sequence, sizeof m->sequence);
    if (m->deadline) {
        int64_t left = (m->deadline - milliseconds()) / 100;
        call->md.Expiry = left < 1 ? 1 : (MQLONG)left;
    }
    return o;
}

static outcome take(connection *c, object *from, message *m, const get_call *call) {
    bool in_unit = (call->options & MQGMO_SYNCPOINT) ||
                   ((call->options & MQGMO_SYNCPOINT_IF_PERSISTENT) && m->md.Persistence == MQPER_PERSISTENT);
    outcome o = in_unit ? session_note(c->session, false, from->queue, m) : done;
    if (is_failed(o)) return o;
    if (from->options & MQOO_SAVE_ALL_CONTEXT) {
        from->context = m->md;
        from->has_context = true;
    }
    queue_unlink(from->queue, m);
    if (!in_unit) message_free(m);
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

outcome memory_get(connection *c, get_call *call) {
    object *from;
    pthread_mutex_lock(&memory_lock);
    outcome o = session_object(c, call->hobj, &from);
    if (!is_failed(o)) o = check_get(from, call);
    if (!is_failed(o)) o = get_from(c, from, call);
    pthread_mutex_unlock(&memory_lock);
    return o;
}
