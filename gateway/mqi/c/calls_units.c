/* MQBEGIN, MQCMIT, MQBACK, MQSTAT. */
#include "mqm.h"

EXPORT void MQBEGIN(MQHCONN hconn, PMQVOID options, PMQLONG cc, PMQLONG rc) {
    connection *c;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = options ? check_structure(options, "BO  ", MQBO_CURRENT_VERSION, RC_BO) : done;
    if (!is_failed(o)) o = qm_begin(c);
    leave(c);
    report(o, cc, rc);
}

EXPORT void MQCMIT(MQHCONN hconn, PMQLONG cc, PMQLONG rc) {
    connection *c;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = qm_commit(c);
    leave(c);
    report(o, cc, rc);
}

EXPORT void MQBACK(MQHCONN hconn, PMQLONG cc, PMQLONG rc) {
    connection *c;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = qm_back_out(c);
    leave(c);
    report(o, cc, rc);
}

static void status_out(const status_call *call, MQSTS *sts) {
    sts->CompCode = call->cc;
    sts->Reason = call->rc;
    sts->PutSuccessCount = call->successes;
    sts->PutWarningCount = call->warnings;
    sts->PutFailureCount = call->failures;
    sts->ObjectType = call->object_type;
    memcpy(sts->ObjectName, call->name, sizeof sts->ObjectName);
    memcpy(sts->ObjectQMgrName, call->qmgr, sizeof sts->ObjectQMgrName);
    memcpy(sts->ResolvedObjectName, call->resolved_name, sizeof sts->ResolvedObjectName);
    memcpy(sts->ResolvedQMgrName, call->resolved_qmgr, sizeof sts->ResolvedQMgrName);
    if (sts->Version < 2) return;
    sts->ObjectString.VSLength = sts->SubName.VSLength = 0;
    sts->OpenOptions = sts->SubOptions = 0;
}

EXPORT void MQSTAT(MQHCONN hconn, MQLONG type, PMQVOID status, PMQLONG cc, PMQLONG rc) {
    connection *c;
    status_call call = {.type = type, .object_type = MQOT_Q};
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = check_structure(status, "STAT", MQSTS_CURRENT_VERSION, RC_STS);
    if (!is_failed(o) && (type < MQSTAT_TYPE_ASYNC_ERROR || type > MQSTAT_TYPE_RECONNECTION_ERROR)) o = failed(2430);
    if (!is_failed(o)) o = qm_status(c, &call);
    leave(c);
    if (!is_failed(o)) status_out(&call, status);
    report(o, cc, rc);
}
