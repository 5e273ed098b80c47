/* MQCB and MQCTL: one thread for each connection gets messages for its registered consumers in turn and calls them.

   The connection's lock is never held while a callback runs. A consumer that is deregistered while the thread runs is only
   marked; the thread frees it between two rounds, so that a callback may deregister itself. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mqm.h"

typedef void (*callback)(MQHCONN, PMQVOID md, PMQVOID gmo, PMQVOID buffer, MQCBC *context);

struct consumer {
    consumer *next;
    MQHOBJ hobj;                      /* 0: the event handler */
    MQLONG type, options, longest;
    callback call;
    void *area;
    MQMD md;
    MQGMO gmo;
    bool suspended, gone, told_empty;
    bool failing;                     /* its last MQGET came to nothing at once */
    MQLONG told_reason;
    struct timespec idle_since;
    buffer room;
};

enum { POLL_MILLISECONDS = 50, FIRST_ROOM = 4096, STARTED = 1, SUSPENDED = 2 };

/* ---- the list ------------------------------------------------------------------------------------------------------------- */

static consumer *find(const connection *c, MQLONG type, MQHOBJ hobj) {
    for (consumer *k = c->consumers; k; k = k->next)
        if (!k->gone && k->type == type && (type == MQCBT_EVENT_HANDLER || k->hobj == hobj)) return k;
    return NULL;
}

static void reap(connection *c) {
    for (consumer **link = &c->consumers; *link;) {
        consumer *k = *link;
        if (!k->gone) {
            link = &k->next;
            continue;
        }
        *link = k->next;
        buffer_free(&k->room);
        free(k);
    }
}

bool on_consumer_thread(const connection *c) {
    return c->consuming && pthread_equal(c->consumer_thread, pthread_self());
}

static void notify(connection *c, consumer *k, MQLONG call_type, outcome why) {
    MQCBC context = {.StrucId = "CBC ", .Version = MQCBC_VERSION_2, .CallType = call_type, .Hobj = k->hobj,
                     .CallbackArea = k->area, .ConnectionArea = c->connection_area, .CompCode = why.cc, .Reason = why.rc};
    MQHCONN handle = c->handle;
    MQMD md = k->md;
    MQGMO gmo = k->gmo;
    callback call = k->call;
    leave(c);
    call(handle, &md, &gmo, NULL, &context);
    pthread_mutex_lock(&c->lock);
}

static void drop(connection *c, consumer *k) {
    k->gone = true;
    if (k->options & MQCBDO_DEREGISTER_CALL) notify(c, k, MQCBCT_DEREGISTER_CALL, done);
    if (!c->consuming) reap(c);
}

void consumer_close(connection *c, MQHOBJ hobj) {
    consumer *k = find(c, MQCBT_MESSAGE_CONSUMER, hobj);
    if (k) drop(c, k);
}

/* ---- the consumer thread ---------------------------------------------------------------------------------------------------- */

static bool waited_long_enough(const consumer *k) {
    if (!(k->gmo.Options & MQGMO_WAIT)) return true;
    if (k->gmo.WaitInterval == MQWI_UNLIMITED) return false;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t waited = (now.tv_sec - k->idle_since.tv_sec) * 1000 + (now.tv_nsec - k->idle_since.tv_nsec) / 1000000;
    return waited >= k->gmo.WaitInterval;
}

static bool concerns_the_connection(MQLONG reason) {
    return reason == RC_CONNECTION_BROKEN || reason == RC_QMGR_QUIESCING || reason == RC_QMGR_STOPPING ||
           reason == RC_CONNECTION_QUIESCING || reason == RC_CONNECTION_STOPPING;
}

/* 2033 is reported once until a message arrives, another failure once for each reason; what concerns the whole connection goes to the
   event handler, once too. */
static void tell_failure(connection *c, consumer *k, outcome why) {
    if (why.rc == RC_NO_MSG) {
        if (k->told_empty || !waited_long_enough(k)) return;
        k->told_empty = true;
        return notify(c, k, MQCBCT_MSG_NOT_REMOVED, why);
    }
    if (k->told_reason == why.rc) return;
    k->told_reason = why.rc;
    consumer *handler = concerns_the_connection(why.rc) ? find(c, MQCBT_EVENT_HANDLER, 0) : NULL;
    if (handler && handler->told_reason == why.rc) return;
    if (handler) handler->told_reason = why.rc;
    notify(c, handler ? handler : k, MQCBCT_EVENT_CALL, why);
}

typedef struct delivery {
    MQMD md;
    MQGMO gmo;
    MQLONG data_length;
    outcome o;
} delivery;

static void get_into_room(connection *c, consumer *k, MQLONG wait, MQLONG size, delivery *d) {
    d->md = k->md;
    d->gmo = k->gmo;
    d->gmo.Options = (d->gmo.Options & ~MQGMO_WAIT) | (wait ? MQGMO_WAIT : 0);
    d->gmo.WaitInterval = wait;
    MQHCONN handle = c->handle;
    MQHOBJ hobj = k->hobj;
    leave(c);
    MQGET(handle, hobj, &d->md, &d->gmo, size, k->room.data, &d->data_length, &d->o.cc, &d->o.rc);
    pthread_mutex_lock(&c->lock);
}

static outcome get_for(connection *c, consumer *k, MQLONG wait, delivery *d) {
    MQLONG size = k->longest == MQCBD_FULL_MSG_LENGTH ? FIRST_ROOM : k->longest;
    if (!buffer_reserve(&k->room, (size_t)size + 1)) return failed(RC_STORAGE);
    if (k->longest == MQCBD_FULL_MSG_LENGTH) size = (MQLONG)k->room.capacity;
    get_into_room(c, k, wait, size, d);
    if (d->o.rc == RC_TRUNCATED_FAILED && k->longest == MQCBD_FULL_MSG_LENGTH) {
        if (!buffer_reserve(&k->room, (size_t)d->data_length + 1)) return failed(RC_STORAGE);
        get_into_room(c, k, 0, (MQLONG)k->room.capacity, d);
    }
    return d->o;
}

static bool deliver(connection *c, consumer *k, MQLONG wait) {
    delivery d = {.data_length = 0};
    outcome o = get_for(c, k, wait, &d);
    k->failing = is_failed(o) && o.rc != RC_NO_MSG;
    if (is_failed(o)) {
        if (!k->gone) tell_failure(c, k, o);
        return k->gone;
    }
    /* The consumer may have been deregistered meanwhile: the message has left the queue, so it is delivered all the same. */
    bool removed = o.rc != RC_TRUNCATED_FAILED && !(d.gmo.Options & (MQGMO_BROWSE_FIRST | MQGMO_BROWSE_NEXT));
    MQLONG fits = d.data_length < (MQLONG)k->room.capacity ? d.data_length : (MQLONG)k->room.capacity;
    if (k->longest != MQCBD_FULL_MSG_LENGTH && fits > k->longest) fits = k->longest;
    MQCBC context = {.StrucId = "CBC ", .Version = MQCBC_VERSION_2, .Hobj = k->hobj,
                     .CallType = removed ? MQCBCT_MSG_REMOVED : MQCBCT_MSG_NOT_REMOVED, .CallbackArea = k->area,
                     .ConnectionArea = c->connection_area, .CompCode = o.cc, .Reason = o.rc,
                     .DataLength = d.data_length, .BufferLength = fits};
    if (o.rc == RC_TRUNCATED_FAILED) {  /* it would be the same message again: until the program resumes, or registers with more room */
        k->suspended = true;
        context.State = MQCS_SUSPENDED_USER_ACTION;
    }
    k->told_empty = false;
    k->told_reason = 0;
    clock_gettime(CLOCK_MONOTONIC, &k->idle_since);
    MQHCONN handle = c->handle;
    leave(c);
    k->call(handle, &d.md, &d.gmo, k->room.data, &context);
    pthread_mutex_lock(&c->lock);
    return true;
}

static int active_consumers(const connection *c) {
    int count = 0;
    for (const consumer *k = c->consumers; k; k = k->next) count += k->type == MQCBT_MESSAGE_CONSUMER && !k->gone && !k->suspended;
    return count;
}

/* The one active consumer, if its MQGET waits by itself. */
static bool waits_by_itself(const connection *c) {
    int count = 0;
    for (const consumer *k = c->consumers; k; k = k->next)
        if (k->type == MQCBT_MESSAGE_CONSUMER && !k->gone && !k->suspended) count += k->failing ? 2 : 1;
    return count == 1;
}

static bool round_of(connection *c) {
    bool any = false;
    int active = active_consumers(c);
    for (consumer *k = c->consumers; k && !c->stopping && c->consuming == STARTED; k = k->next)
        if (k->type == MQCBT_MESSAGE_CONSUMER && !k->gone && !k->suspended)
            any |= deliver(c, k, active == 1 ? POLL_MILLISECONDS : 0);
    reap(c);
    return any;
}

static void tell_all(connection *c, MQLONG wanted, MQLONG call_type) {
    for (consumer *k = c->consumers; k; k = k->next)
        if (!k->gone && (k->options & wanted)) notify(c, k, call_type, done);
}

/* `here`: the program's own thread, given back when there is nothing to consume any more (MQOP_START_WAIT). */
static outcome consume(connection *c, bool here) {
    int pause = 1;
    outcome o = done;
    tell_all(c, MQCBDO_START_CALL, MQCBCT_START_CALL);
    if (c->stopping) o = failed(RC_CONNECTION_STOPPED);
    while (!c->stopping) {
        bool any = round_of(c), idle = c->consuming == SUSPENDED || !active_consumers(c);
        if (c->stopping) break;
        if (here && idle) {
            o = warning(RC_CONNECTION_SUSPENDED);
            break;
        }
        pause = any ? 1 : pause < POLL_MILLISECONDS ? pause * 2 : POLL_MILLISECONDS;
        if (any || (!idle && waits_by_itself(c))) continue;
        c->resting = idle;
        if (idle) pthread_cond_broadcast(&c->stopped);
        leave(c);
        usleep((useconds_t)pause * 1000);
        pthread_mutex_lock(&c->lock);
        c->resting = false;
    }
    tell_all(c, MQCBDO_STOP_CALL, MQCBCT_STOP_CALL);
    c->consuming = 0;
    c->stopping = false;
    reap(c);
    pthread_cond_broadcast(&c->stopped);
    return o;
}

static void *consumer_thread(void *argument) {
    connection *c = argument;
    pthread_mutex_lock(&c->lock);
    (void)consume(c, false);
    leave(c);
    return NULL;
}

/* ---- MQCTL ------------------------------------------------------------------------------------------------------------------ */

static void mark_idle(connection *c) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (consumer *k = c->consumers; k; k = k->next) k->idle_since = now, k->told_empty = false, k->told_reason = 0;
}

static outcome start(connection *c, bool here) {
    if (on_consumer_thread(c) && c->stopping && !here) {  /* a callback takes its MQOP_STOP back */
        c->stopping = false;
        return done;
    }
    if (c->consuming == SUSPENDED || (c->consuming && here)) return failed(RC_OPERATION_NOT_ALLOWED);
    if (c->consuming) return failed(RC_HCONN_ASYNC_ACTIVE);
    if (!active_consumers(c)) return failed(RC_NO_CALLBACKS);
    mark_idle(c);
    c->consuming = STARTED;
    c->stopping = false;
    if (here) {
        c->consumer_thread = pthread_self();
        return consume(c, true);
    }
    if (!pthread_create(&c->consumer_thread, NULL, consumer_thread, c)) {
        pthread_detach(c->consumer_thread);
        return done;
    }
    c->consuming = 0;
    return failed(RC_RESOURCE);
}

/* Waits until the thread has stopped, unless the caller is a callback in that thread. */
static void stop(connection *c) {
    if (!c->consuming) return;
    c->stopping = true;
    while (c->consuming && !on_consumer_thread(c)) pthread_cond_wait(&c->stopped, &c->lock);
}

/* Nothing is delivered after this has returned, unless a callback has called it. */
static void suspend(connection *c) {
    c->consuming = SUSPENDED;
    while (c->consuming == SUSPENDED && !c->resting && !on_consumer_thread(c)) pthread_cond_wait(&c->stopped, &c->lock);
}

static outcome control(connection *c, MQLONG operation, const MQCTLO *options) {
    bool pauses = operation == MQOP_SUSPEND || operation == MQOP_RESUME;
    if (pauses && !c->consuming) return failed(RC_OPERATION_NOT_ALLOWED);
    if (options) c->connection_area = options->ConnectionArea;
    switch (operation) {
    case MQOP_START: return start(c, false);
    case MQOP_START_WAIT: return start(c, true);
    case MQOP_STOP: stop(c); return done;
    case MQOP_SUSPEND: suspend(c); return done;
    case MQOP_RESUME: c->consuming = STARTED; return done;
    default: return failed(RC_OPERATION);
    }
}

EXPORT void MQCTL(MQHCONN hconn, MQLONG operation, PMQVOID options, PMQLONG cc, PMQLONG rc) {
    connection *c;
    outcome o = enter_any(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    o = options ? check_structure(options, "CTLO", MQCTLO_CURRENT_VERSION, RC_CTLO) : done;
    static const MQLONG known = MQCTLO_THREAD_AFFINITY | MQCTLO_FAIL_IF_QUIESCING;
    if (!is_failed(o) && options && (((MQCTLO *)options)->Options & ~known)) o = failed(RC_OPTIONS);
    if (!is_failed(o)) o = control(c, operation, options);
    leave(c);
    report(o, cc, rc);
}

void consumers_end(connection *c) {
    stop(c);
    for (consumer *k = c->consumers; k; k = k->next) {
        if (!k->gone && (k->options & MQCBDO_DEREGISTER_CALL)) notify(c, k, MQCBCT_DEREGISTER_CALL, done);
        k->gone = true;
    }
    if (!c->consuming) reap(c);
}

/* ---- MQCB ------------------------------------------------------------------------------------------------------------------- */

static outcome read_templates(consumer *k, const MQMD *md, const MQGMO *gmo) {
    outcome o = md ? md_in(md, &k->md) : done;
    if (!is_failed(o)) o = gmo ? check_structure(gmo, "GMO ", MQGMO_CURRENT_VERSION, RC_GMO) : done;
    if (!is_failed(o) && gmo && (gmo->Options & MQGMO_WAIT) && gmo->WaitInterval < MQWI_UNLIMITED) o = failed(RC_WAIT_INTERVAL);
    if (is_failed(o)) return o;
    static const size_t lengths[] = {0, MQGMO_LENGTH_1, MQGMO_LENGTH_2, MQGMO_LENGTH_3, MQGMO_LENGTH_4};
    if (gmo) memcpy(&k->gmo, gmo, lengths[gmo->Version]);
    return done;
}

static outcome check_descriptor(const MQCBD *cbd) {
    outcome o = check_structure(cbd, "CBD ", MQCBD_CURRENT_VERSION, RC_CBD);
    if (is_failed(o)) return o;
    if (cbd->CallbackType != MQCBT_MESSAGE_CONSUMER && cbd->CallbackType != MQCBT_EVENT_HANDLER) return failed(RC_CALLBACK_TYPE);
    static const MQLONG known = MQCBDO_START_CALL | MQCBDO_STOP_CALL | MQCBDO_REGISTER_CALL | MQCBDO_DEREGISTER_CALL |
                                MQCBDO_FAIL_IF_QUIESCING | MQCBDO_EVENT_CALL | MQCBDO_MC_EVENT_CALL;
    if (cbd->Options & ~known) return failed(RC_OPTIONS);
    if (!cbd->CallbackFunction) return failed(RC_CALLBACK_ROUTINE);  /* CallbackName: loading a module is not offered */
    return cbd->MaxMsgLength < MQCBD_FULL_MSG_LENGTH ? failed(RC_MAX_MSG_LENGTH) : done;
}

static const consumer fresh = {.md = {MQMD_DEFAULT}, .gmo = {MQGMO_DEFAULT}};

static outcome register_consumer(connection *c, const MQCBD *cbd, MQHOBJ hobj, const MQMD *md, const MQGMO *gmo, bool suspended) {
    outcome o = check_descriptor(cbd);
    if (is_failed(o)) return o;
    bool consumes = cbd->CallbackType == MQCBT_MESSAGE_CONSUMER;
    static const MQLONG browse = MQGMO_BROWSE_FIRST | MQGMO_BROWSE_NEXT | MQGMO_BROWSE_MSG_UNDER_CURSOR;
    o = consumes ? open_handles_check(c, hobj, gmo && (gmo->Options & browse)) : done;
    if (is_failed(o)) return o;
    consumer *k = find(c, cbd->CallbackType, hobj);
    bool added = !k;
    if (added && !(k = malloc(sizeof *k))) return failed(RC_STORAGE);
    if (added) *k = fresh;
    o = read_templates(k, md, gmo);
    if (is_failed(o)) {
        if (added) free(k);
        return o;
    }
    k->type = cbd->CallbackType;
    k->options = cbd->Options;
    k->longest = cbd->MaxMsgLength;
    memcpy(&k->call, &cbd->CallbackFunction, sizeof k->call);
    k->area = cbd->CallbackArea;
    k->hobj = consumes ? hobj : MQHO_NONE;
    k->suspended = suspended;
    if (added) k->next = c->consumers, c->consumers = k;
    if (k->options & MQCBDO_REGISTER_CALL) notify(c, k, MQCBCT_REGISTER_CALL, done);
    return done;
}

static outcome change_consumer(connection *c, MQLONG operation, const MQCBD *cbd, MQHOBJ hobj) {
    MQLONG type = cbd ? cbd->CallbackType : MQCBT_MESSAGE_CONSUMER;
    consumer *k = find(c, type, hobj);
    if (!k) return failed(RC_CALLBACK_NOT_REGISTERED);
    if (operation & MQOP_DEREGISTER) drop(c, k);
    else k->suspended = operation & MQOP_SUSPEND;
    return done;
}

EXPORT void MQCB(MQHCONN hconn, MQLONG operation, PMQVOID descriptor, MQHOBJ hobj, PMQVOID md, PMQVOID gmo, PMQLONG cc, PMQLONG rc) {
    connection *c;
    const MQLONG known = MQOP_REGISTER | MQOP_DEREGISTER | MQOP_SUSPEND | MQOP_RESUME;
    outcome o = enter(hconn, &c);
    if (is_failed(o)) return report(o, cc, rc);
    bool both = (operation & MQOP_DEREGISTER && operation != MQOP_DEREGISTER) ||
                (operation & MQOP_SUSPEND && operation & MQOP_RESUME);
    if (!(operation & known) || (operation & ~known) || both) o = failed(RC_OPERATION);
    else if (operation & MQOP_REGISTER) o = register_consumer(c, descriptor, hobj, md, gmo, operation & MQOP_SUSPEND);
    else o = change_consumer(c, operation, descriptor, hobj);
    leave(c);
    report(o, cc, rc);
}
