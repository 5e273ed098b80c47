/* MQOPEN, MQCLOSE, MQINQ, MQSET, MQSUB, MQSUBRQ: pointers in descriptors are resolved before the call, and results written to
   them after it. */
#include "mqm.h"

outcome open_in(const MQOD *od, MQLONG options, open_call *call);
void open_out(const open_call *call, MQOD *od);

/* ---- MQOD ------------------------------------------------------------------------------------------------------------------- */

outcome open_in(const MQOD *od, MQLONG options, open_call *call) {
    outcome o = check_structure(od, "OD  ", MQOD_CURRENT_VERSION, RC_OD);
    if (is_failed(o)) return o;
    *call = (open_call){.object_type = od->ObjectType, .options = options, .hobj = MQHO_UNUSABLE_HOBJ};
    field_copy(call->name, od->ObjectName, sizeof call->name);
    field_copy(call->qmgr, od->ObjectQMgrName, sizeof call->qmgr);
    field_copy(call->dynamic, od->DynamicQName, sizeof call->dynamic);
    field_copy(call->alternate, od->AlternateUserId, sizeof call->alternate);
    if (od->Version >= 2 && od->RecsPresent != 0) return failed(RC_RECS_PRESENT);
    if (od->Version >= 4) {
        o = charv_in(&od->ObjectString, od, RC_OBJECT_STRING, &call->object_string);
        if (!is_failed(o)) o = charv_in(&od->SelectionString, od, 2519, &call->selection);
    }
    return o;
}

void open_out(const open_call *call, MQOD *od) {
    memcpy(od->ObjectName, call->name, sizeof od->ObjectName);
    memcpy(od->ObjectQMgrName, call->qmgr, sizeof od->ObjectQMgrName);
    if (od->Version < 3) return;
    memcpy(od->ResolvedQName, call->resolved_q, sizeof od->ResolvedQName);
    memcpy(od->ResolvedQMgrName, call->resolved_qmgr, sizeof od->ResolvedQMgrName);
    if (od->Version < 4) return;
    od->ResolvedType = call->resolved_type;
    (void)charv_out(&od->ResObjectString, od, buffer_view(&call->resolved_string), RC_OD, 0);
}

EXPORT void MQOPEN(MQHCONN hconn, PMQVOID od, MQLONG options, PMQHOBJ hobj, PMQLONG cc, PMQLONG rc) {
    connection *c;
    open_call call = {0};
    if (hobj) *hobj = MQHO_UNUSABLE_HOBJ;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = hobj ? open_in(od, options, &call) : failed(RC_HOBJ);
    if (!is_failed(o)) o = qm_open(c, &call);
    if (!is_failed(o)) open_handles_add(c, call.hobj, options);
    leave(c);
    if (!is_failed(o)) {
        *hobj = call.hobj;
        open_out(&call, od);
    }
    buffer_free(&call.resolved_string);
    report(o, cc, rc);
}

EXPORT void MQCLOSE(MQHCONN hconn, PMQHOBJ hobj, MQLONG options, PMQLONG cc, PMQLONG rc) {
    connection *c;
    outcome o = enter_any(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = hobj && *hobj > 0 ? done : failed(RC_HOBJ);
    if (!is_failed(o)) {
        consumer_close(c, *hobj);
        o = qm_close(c, *hobj, options);
        if (!is_failed(o)) open_handles_drop(c, *hobj);
    }
    leave(c);
    if (!is_failed(o)) *hobj = MQHO_UNUSABLE_HOBJ;
    report(o, cc, rc);
}

/* ---- MQINQ, MQSET ----------------------------------------------------------------------------------------------------------- */

static outcome attributes_in(const inquire_call *call) {
    if (call->selector_count < 0) return failed(RC_SELECTOR_COUNT);
    if (call->selector_count > 256) return failed(RC_SELECTOR_LIMIT);
    if (call->selector_count && !call->selectors) return failed(RC_SELECTOR);
    if (call->int_count < 0) return failed(RC_INT_ATTR_COUNT);
    if (call->int_count && !call->ints) return failed(RC_INT_ATTRS);
    if (call->char_length < 0) return failed(RC_CHAR_ATTR_LENGTH);
    return call->char_length && !call->chars ? failed(RC_CHAR_ATTRS) : done;
}

static void call_with_attributes(MQHCONN hconn, inquire_call *call, outcome (*verb)(connection *, inquire_call *), PMQLONG cc,
                                 PMQLONG rc) {
    connection *c;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = attributes_in(call);
    if (!is_failed(o)) o = verb(c, call);
    leave(c);
    report(o, cc, rc);
}

EXPORT void MQINQ(MQHCONN hconn, MQHOBJ hobj, MQLONG count, PMQLONG selectors, MQLONG int_count, PMQLONG ints,
                  MQLONG char_length, PMQCHAR chars, PMQLONG cc, PMQLONG rc) {
    inquire_call call = {hobj, selectors, count, int_count, char_length, ints, chars};
    call_with_attributes(hconn, &call, qm_inquire, cc, rc);
}

EXPORT void MQSET(MQHCONN hconn, MQHOBJ hobj, MQLONG count, PMQLONG selectors, MQLONG int_count, PMQLONG ints,
                  MQLONG char_length, PMQCHAR chars, PMQLONG cc, PMQLONG rc) {
    inquire_call call = {hobj, selectors, count, int_count, char_length, ints, chars};
    call_with_attributes(hconn, &call, qm_set, cc, rc);
}

/* ---- MQSUB, MQSUBRQ --------------------------------------------------------------------------------------------------------- */

static outcome subscribe_in(const MQSD *sd, MQHOBJ hobj, subscribe_call *call) {
    outcome o = check_structure(sd, "SD  ", MQSD_CURRENT_VERSION, RC_SD);
    if (is_failed(o)) return o;
    *call = (subscribe_call){.options = sd->Options, .expiry = sd->SubExpiry, .level = sd->SubLevel,
                             .priority = sd->PubPriority, .hobj = hobj};
    field_copy(call->name, sd->ObjectName, sizeof call->name);
    field_copy(call->alternate, sd->AlternateUserId, sizeof call->alternate);
    memcpy(call->correl_id, sd->SubCorrelId, sizeof call->correl_id);
    memcpy(call->accounting_token, sd->PubAccountingToken, sizeof call->accounting_token);
    field_copy(call->identity, sd->PubApplIdentityData, sizeof call->identity);
    o = charv_in(&sd->ObjectString, sd, RC_OBJECT_STRING, &call->object_string);
    if (!is_failed(o)) o = charv_in(&sd->SubName, sd, RC_SUB_NAME, &call->sub_name);
    if (!is_failed(o)) o = charv_in(&sd->SubUserData, sd, 2431, &call->user_data);
    if (!is_failed(o)) o = charv_in(&sd->SelectionString, sd, 2519, &call->selection);
    return o;
}

static void subscribe_out(const subscribe_call *call, MQSD *sd) {
    bool resumed = call->options & MQSO_RESUME;
    sd->Options = call->options;
    memcpy(sd->SubCorrelId, call->correl_id, sizeof sd->SubCorrelId);
    (void)charv_out(&sd->ResObjectString, sd, buffer_view(&call->resolved_string), RC_SD, 0);
    if (!resumed) return;
    sd->SubExpiry = call->expiry;
    sd->SubLevel = call->level;
    sd->PubPriority = call->priority;
    memcpy(sd->PubAccountingToken, call->accounting_token, sizeof sd->PubAccountingToken);
    memcpy(sd->PubApplIdentityData, call->identity, sizeof sd->PubApplIdentityData);
    (void)charv_out(&sd->SubUserData, sd, call->user_data, RC_SD, 0);
    (void)charv_out(&sd->SelectionString, sd, call->selection, RC_SD, 0);
}

EXPORT void MQSUB(MQHCONN hconn, PMQVOID descriptor, PMQHOBJ hobj, PMQHOBJ hsub, PMQLONG cc, PMQLONG rc) {
    connection *c;
    MQSD *sd = descriptor;
    subscribe_call call = {0};
    if (hsub) *hsub = MQHO_UNUSABLE_HOBJ;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = hobj && hsub ? subscribe_in(sd, *hobj, &call) : failed(RC_HOBJ);
    if (!is_failed(o)) o = qm_subscribe(c, &call);
    if (!is_failed(o)) open_handles_add(c, call.hobj, MQOO_INPUT_AS_Q_DEF | MQOO_BROWSE);
    leave(c);
    if (!is_failed(o)) {
        *hobj = call.hobj;
        *hsub = call.hsub;
        subscribe_out(&call, sd);
    }
    buffer_free(&call.resolved_string);
    buffer_free(&call.returned);
    report(o, cc, rc);
}

EXPORT void MQSUBRQ(MQHCONN hconn, MQHOBJ hsub, MQLONG action, PMQVOID options, PMQLONG cc, PMQLONG rc) {
    connection *c;
    MQSRO *sro = options;
    MQLONG publications = 0;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = sro ? check_structure(sro, "SRO ", MQSRO_CURRENT_VERSION, RC_SRO) : done;
    if (!is_failed(o) && sro && (sro->Options & ~MQSRO_FAIL_IF_QUIESCING)) o = failed(RC_OPTIONS);
    if (!is_failed(o)) o = qm_subscription_request(c, hsub, action, &publications);
    leave(c);
    if (!is_failed(o) && sro) sro->NumPubs = publications;
    report(o, cc, rc);
}
