/* Connection handles: who may use one, one call at a time, and what a fork does to them.

   A handle is a slot and a generation, so that a handle of an ended connection is never taken for that of a new one in the
   same slot. Slots are never freed; a slot's lock therefore outlives every connection that used it. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cmqxc.h"
#include "mqm.h"

enum { SLOT_BITS = 12, SLOTS = 1 << SLOT_BITS, GENERATIONS = 1 << (30 - SLOT_BITS) };

static _Atomic(connection *) slots[SLOTS];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;  /* held while a slot is taken or given back */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- fork: the child keeps no connection of its parent ------------------------------------------------------------------ */

static void after_fork_in_child(void) {
    pthread_mutex_init(&making, NULL);
    handles_reset_lock();
    for (int i = 0; i < SLOTS; i++) {
        connection *c = atomic_load(&slots[i]);
        if (!c) continue;
        pthread_mutex_init(&c->lock, NULL);
        pthread_cond_init(&c->stopped, NULL);
        c->consuming = 0;
        c->open_handles.length = 0;
        if (c->handle) qm_abandon(c);
        c->handle = 0;
        c->session = NULL;
    }
}

static void register_fork(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

/* ---- slots ------------------------------------------------------------------------------------------------------------- */

static connection *slot_of(int index) {
    connection *c = atomic_load(&slots[index]);
    if (c || !(c = calloc(1, sizeof *c))) return c;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->stopped, NULL);
    atomic_store(&slots[index], c);
    return c;
}

/* A free slot, locked; its handle is set, so that it is no longer free. */
static outcome take_slot(connection **out) {
    for (int i = 0; i < SLOTS; i++) {
        connection *c = slot_of(i);
        if (!c) return failed(RC_STORAGE);
        if (c->handle || pthread_mutex_trylock(&c->lock)) continue;  /* a call with an old handle may still hold the lock */
        c->generation = c->generation % (GENERATIONS - 1) + 1;
        c->handle = (c->generation << SLOT_BITS) | i;
        *out = c;
        return done;
    }
    return failed(RC_MAX_CONNS);
}

static void give_back(connection *c) {
    handles_drop(c->handle);
    buffer_free(&c->open_handles);
    pthread_mutex_lock(&making);
    c->handle = 0;
    c->broken = false;
    c->session = NULL;
    pthread_mutex_unlock(&making);
    pthread_mutex_unlock(&c->lock);
}

static bool may_call(const connection *c) {
    if (c->share != MQCNO_HANDLE_SHARE_NONE || pthread_equal(c->owner, pthread_self())) return true;
    return c->consuming && pthread_equal(c->consumer_thread, pthread_self());
}

static outcome lock_call(connection *c) {
    if (c->share != MQCNO_HANDLE_SHARE_NO_BLOCK) return pthread_mutex_lock(&c->lock) ? failed(RC_UNEXPECTED) : done;
    return pthread_mutex_trylock(&c->lock) == EBUSY ? failed(RC_CALL_IN_PROGRESS) : done;
}

static outcome enter_slot(MQHCONN hconn, connection **out) {
    connection *c = hconn > 0 ? atomic_load(&slots[hconn & (SLOTS - 1)]) : NULL;
    if (!c || c->handle != hconn) return failed(RC_HCONN);
    outcome o = lock_call(c);
    if (is_failed(o)) return o;
    if (c->handle != hconn || !may_call(c)) {
        pthread_mutex_unlock(&c->lock);
        return failed(RC_HCONN);
    }
    *out = c;
    return done;
}

outcome enter_any(MQHCONN hconn, connection **out) {
    outcome o = enter_slot(hconn, out);
    if (!is_failed(o) && (*out)->broken) {
        leave(*out);
        return failed(RC_CONNECTION_BROKEN);
    }
    return o;
}

/* While messages are being consumed only callbacks may use the connection. */
outcome enter(MQHCONN hconn, connection **out) {
    outcome o = enter_any(hconn, out);
    if (is_failed(o) || (*out)->consuming != 1 || pthread_equal((*out)->consumer_thread, pthread_self())) return o;
    leave(*out);
    return failed(RC_HCONN_ASYNC_ACTIVE);
}

void leave(connection *c) { pthread_mutex_unlock(&c->lock); }

void unique_id(connection *c, MQBYTE id[24]) {
    static atomic_uint_fast32_t counter;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint32_t high = (uint32_t)now.tv_sec ^ (uint32_t)getpid() << 12, low = (uint32_t)atomic_fetch_add(&counter, 1);
    if (!low) low = (uint32_t)now.tv_nsec;
    memcpy(id, "AMQ ", 4);
    memcpy(id + 4, c->qmgr, 12);
    memcpy(id + 16, &high, 4);
    memcpy(id + 20, &low, 4);
}

/* ---- MQCONN, MQCONNX, MQDISC --------------------------------------------------------------------------------------------- */

static const MQLONG share_options = MQCNO_HANDLE_SHARE_NONE | MQCNO_HANDLE_SHARE_BLOCK | MQCNO_HANDLE_SHARE_NO_BLOCK;

static void read_channel(const MQCD *channel, connect_call *call) {
    if (!channel) return;
    call->channel = field_view(channel->ChannelName, sizeof channel->ChannelName);
    if (channel->Version < 2) return;
    call->address = field_view(channel->ConnectionName, sizeof channel->ConnectionName);
    call->user = field_view(channel->UserIdentifier, sizeof channel->UserIdentifier);
    call->password = field_view(channel->Password, sizeof channel->Password);
}

static outcome read_security(const MQCSP *csp, connect_call *call) {
    if (!csp) return done;
    outcome o = check_structure(csp, "CSP ", MQCSP_CURRENT_VERSION, RC_CSP);
    if (is_failed(o) || csp->AuthenticationType == MQCSP_AUTH_NONE) return o;
    if (csp->AuthenticationType != MQCSP_AUTH_USER_ID_AND_PWD) return failed(RC_CSP);
    if (csp->CSPUserIdLength < 0 || csp->CSPPasswordLength < 0) return failed(RC_CSP);
    call->user = pointed(csp, csp->CSPUserIdPtr, csp->CSPUserIdOffset, csp->CSPUserIdLength);
    call->password = pointed(csp, csp->CSPPasswordPtr, csp->CSPPasswordOffset, csp->CSPPasswordLength);
    return done;
}

static const void *sub_structure(const MQCNO *cno, const void *pointer, MQLONG offset) {
    return pointer ? pointer : offset > 0 ? (const char *)cno + offset : NULL;
}

static outcome read_options(const MQCNO *cno, connect_call *call) {
    outcome o = check_structure(cno, "CNO ", MQCNO_CURRENT_VERSION, RC_CNO);
    if (is_failed(o)) return o;
    call->options = cno->Options;
    MQLONG share = cno->Options & share_options;
    if (share & (share - 1)) return failed(RC_OPTIONS);
    if (cno->Version >= 2) read_channel(sub_structure(cno, cno->ClientConnPtr, cno->ClientConnOffset), call);
    if (cno->Version >= 7) call->application = field_view(cno->ApplName, sizeof cno->ApplName);
    if (cno->Version >= 5) o = read_security(sub_structure(cno, cno->SecurityParmsPtr, cno->SecurityParmsOffset), call);
    return o;
}

/* MQCNO_HANDLE_SHARE_NONE: this thread's connection to that queue manager, if it has one already. */
static connection *own_connection(view qmgr) {
    char asked[48];
    field_set(asked, sizeof asked, qmgr);
    for (int i = 0; i < SLOTS; i++) {
        connection *c = atomic_load(&slots[i]);
        if (!c) return NULL;
        bool mine = c->handle && !c->broken && c->share == MQCNO_HANDLE_SHARE_NONE && pthread_equal(c->owner, pthread_self());
        if (mine && (!memcmp(c->asked, asked, 48) || !memcmp(c->qmgr, asked, 48))) return c;
    }
    return NULL;
}

static const char *program_name(void) {
    extern char *program_invocation_short_name;
    return program_invocation_short_name ? program_invocation_short_name : "";
}

static outcome establish(connection *c, connect_call *call) {
    c->share = call->options & share_options;
    if (!c->share) c->share = MQCNO_HANDLE_SHARE_NONE;
    c->owner = pthread_self();
    c->consumers = NULL;
    c->consuming = 0;
    if (!call->application.length) {
        const char *name = program_name();
        call->application = (view){(const unsigned char *)name, strlen(name)};
    }
    field_set(c->application, sizeof c->application, call->application);
    field_set(c->asked, sizeof c->asked, call->qmgr);
    outcome o = qm_connect(c, call);
    memcpy(c->qmgr, call->qmgr_name, sizeof c->qmgr);
    memcpy(c->id, call->connection_id, sizeof c->id);
    return o;
}

static outcome connect_new(connect_call *call, PMQHCONN hconn, MQBYTE id[24]) {
    connection *c = NULL;
    pthread_mutex_lock(&making);
    outcome o = take_slot(&c);
    pthread_mutex_unlock(&making);
    if (is_failed(o)) return o;
    o = establish(c, call);
    if (is_failed(o)) {
        give_back(c);
        return o;
    }
    *hconn = c->handle;
    memcpy(id, c->id, 24);
    leave(c);
    return o;
}

static outcome connect_any(PMQCHAR name, PMQCNO cno, PMQHCONN hconn) {
    if (!hconn) return failed(RC_HCONN);
    *hconn = MQHC_UNUSABLE_HCONN;
    if (!name) return failed(RC_QMGR_NAME);
    connect_call call = {.qmgr = field_view(name, 48)};
    MQBYTE id[24] = {0};
    outcome o = cno ? read_options(cno, &call) : done;
    if (is_failed(o)) return o;
    pthread_once(&once, register_fork);
    connection *mine = call.options & share_options & ~MQCNO_HANDLE_SHARE_NONE ? NULL : own_connection(call.qmgr);
    if (mine) {
        *hconn = mine->handle;
        return warning(RC_ALREADY_CONNECTED);
    }
    o = connect_new(&call, hconn, id);
    if (!is_failed(o) && cno && cno->Version >= 5) memcpy(cno->ConnectionId, id, sizeof id);
    return o;
}

EXPORT void MQCONN(PMQCHAR name, PMQHCONN hconn, PMQLONG cc, PMQLONG rc) { report(connect_any(name, NULL, hconn), cc, rc); }

EXPORT void MQCONNX(PMQCHAR name, PMQCNO cno, PMQHCONN hconn, PMQLONG cc, PMQLONG rc) {
    report(connect_any(name, cno, hconn), cc, rc);
}

EXPORT void MQDISC(PMQHCONN hconn, PMQLONG cc, PMQLONG rc) {
    connection *c;
    outcome o = hconn ? enter_slot(*hconn, &c) : failed(RC_HCONN);
    if (!is_failed(o) && on_consumer_thread(c)) {
        leave(c);
        o = failed(RC_CALL_IN_PROGRESS);  /* a callback may not end the connection it was called on */
    } else if (!is_failed(o)) {
        consumers_end(c);
        o = c->broken ? failed(RC_CONNECTION_BROKEN) : done;
        outcome ended = qm_disconnect(c);
        if (!is_failed(o)) o = ended;
        give_back(c);
        *hconn = MQHC_UNUSABLE_HCONN;
    }
    report(o, cc, rc);
}
