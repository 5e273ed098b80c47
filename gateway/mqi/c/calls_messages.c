/* MQPUT, MQPUT1, MQGET. The descriptor is sent as version 2 whatever the caller gave; only fields of the caller's version are
   written back. The properties of a message handle are packed here: the queue manager is sent no handles. */
#include "mqm.h"

outcome open_in(const MQOD *od, MQLONG options, open_call *call);

/* ---- put -------------------------------------------------------------------------------------------------------------------- */

/* Of the message that is passed on, what its copy options let through; into a new message, all. */
static outcome put_properties(const MQPMO *pmo, buffer *out) {
    static const MQLONG copied[] = {[MQACTP_NEW] = MQCOPY_EVERY, [MQACTP_FORWARD] = MQCOPY_ALL | MQCOPY_FORWARD,
                                    [MQACTP_REPLY] = MQCOPY_ALL | MQCOPY_REPLY, [MQACTP_REPORT] = MQCOPY_ALL | MQCOPY_REPORT};
    if (pmo->Action < MQACTP_NEW || pmo->Action > MQACTP_REPORT) return failed(RC_ACTION);
    if (pmo->OriginalMsgHandle == MQHM_NONE && pmo->NewMsgHandle == MQHM_NONE) return done;
    property_list none = {0}, *original = &none, *changes = &none;
    outcome o = handles_enter(pmo->OriginalMsgHandle, &original, pmo->NewMsgHandle, &changes);
    if (is_failed(o)) return o;
    if (!properties_pack(original, changes, copied[pmo->Action], out)) o = failed(RC_STORAGE);
    handle_leave();
    return o;
}

static outcome put_in(const MQMD *md, const MQPMO *pmo, MQLONG length, const void *data, put_call *call) {
    outcome o = md_in(md, &call->md);
    if (!is_failed(o)) o = check_structure(pmo, "PMO ", MQPMO_CURRENT_VERSION, RC_PMO);
    if (is_failed(o)) return o;
    if (length < 0) return failed(RC_BUFFER_LENGTH);
    if (length && !data) return failed(RC_BUFFER_ERROR);
    if ((pmo->Options & MQPMO_LOGICAL_ORDER) && md->Version < MQMD_VERSION_2) return failed(RC_WRONG_MD_VERSION);
    if ((pmo->Options & MQPMO_SYNCPOINT) && (pmo->Options & MQPMO_NO_SYNCPOINT)) return failed(RC_OPTIONS);
    if ((pmo->Options & MQPMO_SYNC_RESPONSE) && (pmo->Options & MQPMO_ASYNC_RESPONSE)) return failed(RC_OPTIONS);
    call->options = pmo->Options;
    call->context = pmo->Context;
    call->data = (view){data, (size_t)length};
    call->pub_level = 9;
    if (pmo->Version >= 2 && pmo->RecsPresent != 0) return failed(RC_RECS_PRESENT);
    if (pmo->Version < 3) return done;
    call->pub_level = pmo->PubLevel;
    return put_properties(pmo, &call->properties);
}

static void put_out(const put_call *call, MQMD *md, MQPMO *pmo) {
    md_out(&call->md, md);
    memcpy(pmo->ResolvedQName, call->resolved_q, sizeof pmo->ResolvedQName);
    memcpy(pmo->ResolvedQMgrName, call->resolved_qmgr, sizeof pmo->ResolvedQMgrName);
}

static outcome put_any(MQHCONN hconn, put_call *call, MQOD *od, MQMD *md, MQPMO *pmo, MQLONG length, const void *data) {
    connection *c;
    open_call target;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return o;
    if (od) {
        o = open_in(od, MQOO_OUTPUT, &target);
        call->target = &target;
    } else if (call->hobj <= 0) {
        o = failed(RC_HOBJ);
    }
    if (!is_failed(o)) o = put_in(md, pmo, length, data, call);
    if (!is_failed(o)) o = qm_put(c, call);
    leave(c);
    if (!is_failed(o)) put_out(call, md, pmo);
    buffer_free(&call->properties);
    return o;
}

EXPORT void MQPUT(MQHCONN hconn, MQHOBJ hobj, PMQVOID md, PMQVOID pmo, MQLONG length, PMQVOID data, PMQLONG cc, PMQLONG rc) {
    put_call call = {.hobj = hobj};
    report(put_any(hconn, &call, NULL, md, pmo, length, data), cc, rc);
}

static void put1_out(const put_call *call, MQOD *od) {
    if (od->Version < 3) return;
    memcpy(od->ResolvedQName, call->resolved_q, sizeof od->ResolvedQName);
    memcpy(od->ResolvedQMgrName, call->resolved_qmgr, sizeof od->ResolvedQMgrName);
}

EXPORT void MQPUT1(MQHCONN hconn, PMQVOID od, PMQVOID md, PMQVOID pmo, MQLONG length, PMQVOID data, PMQLONG cc, PMQLONG rc) {
    put_call call = {0};
    outcome o = od ? put_any(hconn, &call, od, md, pmo, length, data) : failed(RC_OD);
    if (!is_failed(o)) put1_out(&call, od);
    report(o, cc, rc);
}

/* ---- get -------------------------------------------------------------------------------------------------------------------- */

static outcome get_in(const MQMD *md, const MQGMO *gmo, MQLONG size, void *room, get_call *call) {
    outcome o = md_in(md, &call->md);
    if (!is_failed(o)) o = check_structure(gmo, "GMO ", MQGMO_CURRENT_VERSION, RC_GMO);
    if (is_failed(o)) return o;
    if (size < 0) return failed(RC_BUFFER_LENGTH);
    if (size && !room) return failed(RC_BUFFER_ERROR);
    if ((gmo->Options & MQGMO_LOGICAL_ORDER) && gmo->Version < MQGMO_VERSION_2) return failed(RC_WRONG_GMO_VERSION);
    if ((gmo->Options & MQGMO_LOGICAL_ORDER) && md->Version < MQMD_VERSION_2) return failed(RC_WRONG_MD_VERSION);
    call->md_version = md->Version;
    call->options = gmo->Options;
    call->wait = gmo->WaitInterval;
    call->room = room;
    call->size = size;
    call->match = gmo->Version >= 2 ? gmo->MatchOptions : MQMO_MATCH_MSG_ID | MQMO_MATCH_CORREL_ID;
    if (gmo->Version >= 3) memcpy(call->token, gmo->MsgToken, sizeof call->token);
    call->has_handle = gmo->Version >= 4 && gmo->MsgHandle != MQHM_NONE;
    if ((call->options & MQGMO_PROPERTIES_IN_HANDLE) && !call->has_handle) return failed(RC_HMSG);
    if ((call->options & MQGMO_WAIT) && call->wait < MQWI_UNLIMITED) return failed(RC_WAIT_INTERVAL);
    if (!call->has_handle) return done;
    property_list *list;
    o = handle_enter(gmo->MsgHandle, &list);
    if (!is_failed(o)) handle_leave();
    return o;
}

static outcome get_properties(const get_call *call, MQHMSG handle) {
    property_list *list;
    outcome o = handle_enter(handle, &list);
    if (is_failed(o)) return o;
    properties_clear(list);
    if (call->in_handle && !properties_unpack(list, buffer_view(&call->properties))) o = failed(RC_UNEXPECTED);
    handle_leave();
    return o;
}

static void get_out(const get_call *call, MQMD *md, MQGMO *gmo) {
    md_out(&call->md, md);
    memcpy(gmo->ResolvedQName, call->resolved_q, sizeof gmo->ResolvedQName);
    if (gmo->Version >= 2) {
        gmo->GroupStatus = call->group_status;
        gmo->SegmentStatus = call->segment_status;
        gmo->Segmentation = call->segmentation;
    }
    if (gmo->Version >= 3) {
        memcpy(gmo->MsgToken, call->token, sizeof gmo->MsgToken);
        gmo->ReturnedLength = call->returned;
    }
}

static outcome get_any(MQHCONN hconn, get_call *call, MQMD *md, MQGMO *gmo, MQLONG size, void *room, PMQLONG data_length) {
    connection *c;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return o;
    o = call->hobj > 0 ? get_in(md, gmo, size, room, call) : failed(RC_HOBJ);
    if (!is_failed(o) && !data_length) o = failed(RC_DATA_LENGTH);
    if (!is_failed(o)) o = qm_get(c, call);
    leave(c);
    if (is_failed(o)) return o;
    *data_length = call->data_length;
    get_out(call, md, gmo);
    if (call->has_handle) {
        outcome filled = get_properties(call, gmo->MsgHandle);
        if (is_failed(filled)) o = filled;
    }
    return o;
}

EXPORT void MQGET(MQHCONN hconn, MQHOBJ hobj, PMQVOID md, PMQVOID gmo, MQLONG size, PMQVOID room, PMQLONG data_length,
                  PMQLONG cc, PMQLONG rc) {
    get_call call = {.hobj = hobj, .group_status = ' ', .segment_status = ' ', .segmentation = ' '};
    outcome o = get_any(hconn, &call, md, gmo, size, room, data_length);
    buffer_free(&call.properties);
    report(o, cc, rc);
}
