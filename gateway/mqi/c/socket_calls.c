/* The queue manager at the other end of the socket: each call is one frame and, except for asynchronous puts, one answer. */
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include "socket.h"

/* ---- connecting ---------------------------------------------------------------------------------------------------------------- */

static view own_user(char *room, size_t size) {
    struct passwd entry, *found = NULL;
    if (getpwuid_r(geteuid(), &entry, room, size, &found) || !found) return (view){0};
    return (view){(unsigned char *)entry.pw_name, strlen(entry.pw_name)};
}

static outcome greet(connection *c, wire *w, connect_call *call) {
    char room[1024];
    answer a;
    view user = call->user.length ? call->user : own_user(room, sizeof room);
    frame_begin(w, VERB_CONNECT, 0);
    frame_bytes(w, "MQGI", 4);
    frame_i4(w, PROTOCOL_VERSION);
    frame_i4(w, call->options);
    frame_i4(w, call->user.length > 0);  /* 1: the program gave user and password; 0: the user is the one who runs it */
    frame_blob(w, call->qmgr);
    frame_blob(w, user);
    frame_blob(w, call->password);
    frame_blob(w, call->application);
    frame_blob(w, call->channel);
    frame_blob(w, call->address);
    outcome o = frame_exchange(c, w, &a);
    if (is_failed(o)) return o.rc == RC_CONNECTION_BROKEN ? failed(RC_QMGR_NOT_AVAILABLE) : o;
    if (answer_i4(&a) != PROTOCOL_VERSION) return failed(RC_QMGR_NOT_AVAILABLE);
    answer_field(&a, call->qmgr_name, sizeof call->qmgr_name);
    view id = answer_bytes(&a, sizeof call->connection_id);
    if (id.data) memcpy(call->connection_id, id.data, id.length);
    return answer_end(c, &a, o);
}

outcome qm_connect(connection *c, connect_call *call) {
    wire *w = calloc(1, sizeof *w);
    if (!w) return failed(RC_STORAGE);
    outcome o = wire_dial(w, call->address);
    if (!is_failed(o)) o = greet(c, w, call);
    if (!is_failed(o)) {
        c->session = w;
        return o;
    }
    wire_close(w);
    free(w);
    return o;
}

static outcome simple(connection *c, enum verb verb) {
    wire *w = c->session;
    answer a;
    frame_begin(w, verb, 0);
    return frame_exchange(c, w, &a);
}

outcome qm_disconnect(connection *c) {
    wire *w = c->session;
    if (!w) return done;
    outcome o = c->broken ? done : simple(c, VERB_DISCONNECT);
    wire_close(w);
    free(w);
    c->session = NULL;
    return o;
}

void qm_abandon(connection *c) {
    wire *w = c->session;
    if (w && w->fd >= 0) close(w->fd);  /* the child's copy; the parent's connection goes on */
}

/* ---- objects ------------------------------------------------------------------------------------------------------------------- */

static void write_descriptor(wire *w, const open_call *call) {
    frame_i4(w, call->object_type);
    frame_field(w, call->name, sizeof call->name);
    frame_field(w, call->qmgr, sizeof call->qmgr);
    frame_field(w, call->dynamic, sizeof call->dynamic);
    frame_field(w, call->alternate, sizeof call->alternate);
    frame_blob(w, call->object_string);
    frame_blob(w, call->selection);
}

outcome qm_open(connection *c, open_call *call) {
    wire *w = c->session;
    answer a;
    frame_begin(w, VERB_OPEN, 0);
    write_descriptor(w, call);
    frame_i4(w, call->options);
    outcome o = frame_exchange(c, w, &a);
    if (is_failed(o)) return o;
    call->hobj = answer_i4(&a);
    answer_field(&a, call->name, sizeof call->name);
    answer_field(&a, call->qmgr, sizeof call->qmgr);
    answer_field(&a, call->resolved_q, sizeof call->resolved_q);
    answer_field(&a, call->resolved_qmgr, sizeof call->resolved_qmgr);
    view string = answer_blob(&a);
    call->resolved_type = answer_i4(&a);
    if (!buffer_add(&call->resolved_string, string.data, string.length)) return failed(RC_STORAGE);
    return answer_end(c, &a, o);
}

outcome qm_close(connection *c, MQHOBJ hobj, MQLONG options) {
    wire *w = c->session;
    answer a;
    frame_begin(w, VERB_CLOSE, 0);
    frame_i4(w, hobj);
    frame_i4(w, options);
    return frame_exchange(c, w, &a);
}

/* ---- messages ------------------------------------------------------------------------------------------------------------------ */

static void write_put(wire *w, const put_call *call, int flags) {
    frame_begin(w, call->target ? VERB_PUT1 : VERB_PUT, flags);
    if (call->target) write_descriptor(w, call->target);
    else frame_i4(w, call->hobj);
    frame_i4(w, call->options);
    frame_i4(w, call->context);
    frame_i4(w, call->pub_level);
    frame_bytes(w, &call->md, sizeof call->md);
    frame_blob(w, buffer_view(&call->properties));
    frame_blob(w, call->data);
}

/* Sent without waiting for an answer. The identifiers that a program asks for are made here, as it may use them at once. */
static outcome put_async(connection *c, wire *w, put_call *call) {
    static const MQBYTE none[24];
    if ((call->options & MQPMO_NEW_MSG_ID) || !memcmp(call->md.MsgId, none, 24)) unique_id(c, call->md.MsgId);
    if (call->options & MQPMO_NEW_CORREL_ID) unique_id(c, call->md.CorrelId);
    call->options &= ~(MQPMO_NEW_MSG_ID | MQPMO_NEW_CORREL_ID);
    memcpy(call->md.PutApplName, c->application, sizeof call->md.PutApplName);
    call->md.PutApplType = MQAT_UNIX;
    memset(call->resolved_q, ' ', sizeof call->resolved_q);
    memset(call->resolved_qmgr, ' ', sizeof call->resolved_qmgr);
    write_put(w, call, NO_REPLY);
    return call->options & MQPMO_SYNCPOINT ? frame_hold(c, w) : frame_send(c, w);
}

outcome qm_put(connection *c, put_call *call) {
    wire *w = c->session;
    answer a;
    if (call->options & MQPMO_ASYNC_RESPONSE) return put_async(c, w, call);
    write_put(w, call, 0);
    outcome o = frame_exchange(c, w, &a);
    if (is_failed(o)) return o;
    view md = answer_bytes(&a, sizeof call->md);
    if (md.data) memcpy(&call->md, md.data, sizeof call->md);
    answer_field(&a, call->resolved_q, sizeof call->resolved_q);
    answer_field(&a, call->resolved_qmgr, sizeof call->resolved_qmgr);
    return answer_end(c, &a, o);
}

static void read_message(answer *a, get_call *call) {
    view md = answer_bytes(a, sizeof call->md);
    if (md.data) memcpy(&call->md, md.data, sizeof call->md);
    call->data_length = answer_i4(a);
    view data = answer_blob(a);
    a->bad |= data.length > (size_t)call->size;
    if (data.length && !a->bad) memcpy(call->room, data.data, data.length);
    call->returned = (MQLONG)data.length;
    answer_field(a, call->resolved_q, sizeof call->resolved_q);
    view marks = answer_bytes(a, 4), token = answer_bytes(a, sizeof call->token);
    if (marks.data) {
        call->group_status = (char)marks.data[0];
        call->segment_status = (char)marks.data[1];
        call->segmentation = (char)marks.data[2];
    }
    if (token.data) memcpy(call->token, token.data, token.length);
    call->in_handle = answer_i4(a);
}

outcome qm_get(connection *c, get_call *call) {
    wire *w = c->session;
    answer a;
    MQLONG by_version = call->md_version < 2 ? MQMO_MATCH_MSG_ID | MQMO_MATCH_CORREL_ID | MQMO_MATCH_MSG_TOKEN : -1;
    frame_begin(w, VERB_GET, 0);
    frame_i4(w, call->hobj);
    frame_i4(w, call->options);
    frame_i4(w, call->wait);
    frame_i4(w, call->match & by_version);
    frame_i4(w, call->has_handle);
    frame_i4(w, call->md_version);
    frame_i4(w, call->size);
    frame_bytes(w, call->token, sizeof call->token);
    frame_bytes(w, &call->md, sizeof call->md);
    outcome o = frame_exchange(c, w, &a);
    if (is_failed(o)) return o;
    read_message(&a, call);
    view properties = answer_blob(&a);
    if (!a.bad && properties.length && !buffer_add(&call->properties, properties.data, properties.length)) return failed(RC_STORAGE);
    return answer_end(c, &a, o);
}

outcome qm_begin(connection *c) { return simple(c, VERB_BEGIN); }
outcome qm_commit(connection *c) { return simple(c, VERB_COMMIT); }
outcome qm_back_out(connection *c) { return simple(c, VERB_BACK_OUT); }

/* ---- attributes ---------------------------------------------------------------------------------------------------------------- */

static void write_selectors(wire *w, const inquire_call *call) {
    frame_i4(w, call->hobj);
    frame_i4(w, call->selector_count);
    frame_bytes(w, call->selectors, (size_t)call->selector_count * sizeof(MQLONG));
}

/* As many whole character attributes as there is room for. How long each is shows when they are asked for one by one. */
static outcome inquire_what_fits(connection *c, const inquire_call *call) {
    size_t used = 0;
    for (MQLONG i = 0; i < call->selector_count; i++) {
        if (call->selectors[i] < MQCA_FIRST || call->selectors[i] > MQCA_LAST) continue;
        inquire_call one = {call->hobj, &call->selectors[i], 1, 0, 0, NULL, NULL};
        answer a;
        frame_begin(c->session, VERB_INQUIRE, 0);
        write_selectors(c->session, &one);
        outcome o = frame_exchange(c, c->session, &a);
        if (is_failed(o)) return o;
        (void)answer_blob(&a);
        view text = answer_blob(&a);
        if (a.bad) return answer_end(c, &a, o);
        if (text.length > (size_t)call->char_length - used) break;
        if (text.length) memcpy(call->chars + used, text.data, text.length);
        used += text.length;
    }
    return warning(RC_CHAR_ATTRS_TOO_SHORT);
}

outcome qm_inquire(connection *c, inquire_call *call) {
    wire *w = c->session;
    answer a;
    frame_begin(w, VERB_INQUIRE, 0);
    write_selectors(w, call);
    outcome o = frame_exchange(c, w, &a);
    if (is_failed(o)) return o;
    view ints = answer_blob(&a), chars = answer_blob(&a);
    if (a.bad) return answer_end(c, &a, o);
    size_t room = (size_t)call->int_count * sizeof(MQLONG);
    bool few = ints.length > room, shortened = chars.length > (size_t)call->char_length;
    if (ints.length) memcpy(call->ints, ints.data, few ? room : ints.length);
    if (shortened) return inquire_what_fits(c, call);
    if (chars.length) memcpy(call->chars, chars.data, chars.length);
    return few ? warning(RC_INT_ATTRS_TOO_SMALL) : o;
}

outcome qm_set(connection *c, inquire_call *call) {
    wire *w = c->session;
    answer a;
    frame_begin(w, VERB_SET, 0);
    write_selectors(w, call);
    frame_blob(w, (view){(unsigned char *)call->ints, (size_t)call->int_count * sizeof(MQLONG)});
    frame_blob(w, (view){(unsigned char *)call->chars, (size_t)call->char_length});
    return frame_exchange(c, w, &a);
}

outcome qm_status(connection *c, status_call *call) {
    wire *w = c->session;
    answer a;
    frame_begin(w, VERB_STATUS, 0);
    frame_i4(w, call->type);
    outcome o = frame_exchange(c, w, &a);
    if (is_failed(o)) return o;
    call->cc = answer_i4(&a);
    call->rc = answer_i4(&a);
    call->successes = answer_i4(&a);
    call->warnings = answer_i4(&a);
    call->failures = answer_i4(&a);
    call->object_type = answer_i4(&a);
    answer_field(&a, call->name, sizeof call->name);
    answer_field(&a, call->qmgr, sizeof call->qmgr);
    answer_field(&a, call->resolved_name, sizeof call->resolved_name);
    answer_field(&a, call->resolved_qmgr, sizeof call->resolved_qmgr);
    return answer_end(c, &a, o);
}

/* ---- subscriptions ------------------------------------------------------------------------------------------------------------- */

/* What the subscription is: for MQSO_RESUME. */
static void read_subscription(answer *a, subscribe_call *call) {
    call->expiry = answer_i4(a);
    call->level = answer_i4(a);
    call->priority = answer_i4(a);
    view user_data = answer_blob(a), selection = answer_blob(a), token = answer_bytes(a, sizeof call->accounting_token);
    answer_field(a, call->identity, sizeof call->identity);
    if (token.data) memcpy(call->accounting_token, token.data, token.length);
    (void)(buffer_add(&call->returned, user_data.data, user_data.length) &&
           buffer_add(&call->returned, selection.data, selection.length));
    call->user_data = (view){call->returned.data, user_data.length};
    call->selection = (view){call->returned.data + user_data.length, selection.length};
}

outcome qm_subscribe(connection *c, subscribe_call *call) {
    wire *w = c->session;
    answer a;
    frame_begin(w, VERB_SUBSCRIBE, 0);
    frame_i4(w, call->options);
    frame_i4(w, call->expiry);
    frame_i4(w, call->level);
    frame_i4(w, call->priority);
    frame_i4(w, call->hobj);
    frame_bytes(w, call->correl_id, sizeof call->correl_id);
    frame_field(w, call->name, sizeof call->name);
    frame_field(w, call->alternate, sizeof call->alternate);
    frame_blob(w, call->object_string);
    frame_blob(w, call->sub_name);
    frame_blob(w, call->user_data);
    frame_blob(w, call->selection);
    frame_bytes(w, call->accounting_token, sizeof call->accounting_token);
    frame_field(w, call->identity, sizeof call->identity);
    outcome o = frame_exchange(c, w, &a);
    if (is_failed(o)) return o;
    call->hobj = answer_i4(&a);
    call->hsub = answer_i4(&a);
    view id = answer_bytes(&a, sizeof call->correl_id), string = answer_blob(&a);
    if (id.data) memcpy(call->correl_id, id.data, id.length);
    call->options = answer_i4(&a);
    if (!buffer_add(&call->resolved_string, string.data, string.length)) return failed(RC_STORAGE);
    read_subscription(&a, call);
    return call->returned.length == call->user_data.length + call->selection.length ? answer_end(c, &a, o) : failed(RC_STORAGE);
}

outcome qm_subscription_request(connection *c, MQHOBJ hsub, MQLONG action, MQLONG *publications) {
    wire *w = c->session;
    answer a;
    frame_begin(w, VERB_SUBSCRIPTION_REQUEST, 0);
    frame_i4(w, hsub);
    frame_i4(w, action);
    outcome o = frame_exchange(c, w, &a);
    if (is_failed(o)) return o;
    *publications = answer_i4(&a);
    return answer_end(c, &a, o);
}
