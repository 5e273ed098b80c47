/*
 * The MQI calls of one unit of work, made one after the other without the interpreter's lock.
 *
 * A binding's extension takes the lock back after every call, and beside a busy reactor that is a wait for each message.
 * Here the whole unit is prepared with the lock, carried out without it, and its outcome read with it again. The calls
 * themselves are the client library's, by the addresses the binding uses. connection.py makes the same calls in Python,
 * where this extension was not built; the tests compare the two.
 *
 * A unit is carried out on the thread that asks (carry), or handed by post() to the thread that is parked in wait():
 * that one wakes, calls, tells the reactor through a descriptor and parks again, and never needs the lock. It
 * returns to Python only for what the queue manager refuses. It knows one reason code: no message available (2033).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

#define MD_LENGTH 364
#define PMO_LENGTH 184
#define GMO_LENGTH 112
#define ID_LENGTH 24
#define AT_FEEDBACK 20
#define AT_PRIORITY 40
#define AT_PERSISTENCE 44
#define AT_MSG_ID 48
#define AT_CORREL_ID 72
#define IDENTITY_FROM 196
#define IDENTITY_TO 272
#define FEEDBACK_FIRST 65536
#define KEY_BITS 5
#define CC_FAILED 2
#define RC_NO_MESSAGE 2033
#define LONGEST_WAIT 1000000.0
#define AROUND 3 /* calls of a unit besides its puts */
/* The reactor waits for a unit it has posted, instead of going on, in one of two cases (nanoseconds): */
#define PROMPT 50000 /* the unit has at most FEW rows and its calls are expected to take less than this; */
#define FEW 20       /* with more rows there is input to read meanwhile; */
#define LONG 100000  /* or they take less than this, and less than waking a thread on another core twice. */
#define LONGEST_REACTOR_WAIT 200000 /* It never waits longer. */
#define MEASURE 256 /* Once in so many units of the second case it goes on, to measure again how long waking takes. */
#define MOST_LEFT_OUT 1024

typedef void (*put_call)(int32_t, int32_t, void *, void *, int32_t, void *, int32_t *, int32_t *);
typedef void (*get_call)(int32_t, int32_t, void *, void *, int32_t, void *, int32_t *, int32_t *, int32_t *);
typedef void (*commit_call)(int32_t, int32_t *, int32_t *);

/* How far a unit has come: everything is done, or which call was refused. */
enum stage { DONE, MARKER_GONE, MARKER_TAKEN, MARKER_PUT, PUT, COMMIT };

enum state { IDLE, POSTED, CARRIED, STOPPED };

/* Why wait() has returned. */
enum back { WOKEN, TIMED_OUT, REFUSED };

typedef struct {
    PyObject *head, *body;
} row;

typedef struct {
    int32_t handle, priority, persistent;
    Py_ssize_t rows, key_length;
    int keyed;
    char key[ID_LENGTH];
    char options[PMO_LENGTH], identity[PMO_LENGTH];
} run;

typedef struct {
    int there, fence, take;
    int32_t in, out;
    _Alignas(8) char take_md[MD_LENGTH];
    _Alignas(8) char take_options[GMO_LENGTH];
    _Alignas(8) char put_md[MD_LENGTH];
    _Alignas(8) char put_options[PMO_LENGTH];
} marker;

/* Back-off for an optimisation: each failure in a row doubles how many times it is skipped, up to MOST_LEFT_OUT. */
typedef struct {
    int left_out, every;
} attempts;

typedef struct {
    PyObject_HEAD
    put_call put;
    get_call get;
    commit_call commit;
    int told; /* an eventfd, written to when a posted unit is committed */
    sem_t wakes, through;
    atomic_int state;
    atomic_int reactor_waits; /* the reactor waits for `through`: the thread that sets this to 0 decides the outcome */
    atomic_long call_ns;      /* nanoseconds of one MQI call, running mean */
    atomic_long wake_ns;      /* nanoseconds until the parked thread runs on another core, running mean */
    long posted;              /* when; 0: the thread is pinned, so waking it is not measured */
    unsigned unmeasured;
    attempts waits; /* back-off for waiting on posted units */
    int parked;     /* guarded by the interpreter's lock, as `pinned_core` is */
#ifdef __linux__
    pid_t thread; /* the parked thread */
    int pinned_core; /* the core it is pinned to; -1: none */
    cpu_set_t anywhere;
#endif
    /* the unit */
    int32_t connection;
    int commits;
    marker mark;
    run *runs;
    row *held;
    char *ids, *data;
    Py_ssize_t n_runs, n_rows, room_runs, room_rows, room_data;
    /* its outcome */
    enum stage stage;
    Py_ssize_t rows_put;
    int32_t comp_code, reason;
} Carrier;

static int has_identity(const char *head)
{
    for (int at = IDENTITY_FROM; at < IDENTITY_TO; at++)
        if (head[at] != 0 && head[at] != ' ') return 1;
    return 0;
}

/* The functions from here on run without the interpreter's lock ... */

static int refused(Carrier *self, enum stage stage)
{
    if (self->comp_code != CC_FAILED) return 0;
    self->stage = stage;
    return 1;
}

static int mark(Carrier *self)
{
    marker *m = &self->mark;
    int32_t length;
    char none[8];
    if (m->take) {
        self->get(self->connection, m->in, m->take_md, m->take_options, 0, none, &length, &self->comp_code, &self->reason);
        if (self->comp_code == CC_FAILED && self->reason == RC_NO_MESSAGE) {
            if (m->fence) return refused(self, MARKER_GONE);
        } else if (refused(self, MARKER_TAKEN)) {
            return 1;
        }
    }
    self->put(self->connection, m->out, m->put_md, m->put_options, 0, none, &self->comp_code, &self->reason);
    return refused(self, MARKER_PUT);
}

static int put_run(Carrier *self, const run *r)
{
    _Alignas(8) char md[MD_LENGTH];
    _Alignas(8) char options[PMO_LENGTH];
    const PyObject *last = NULL;
    const char *wanted = r->options;
    size_t front = 0;
    for (Py_ssize_t i = 0; i < r->rows; i++, self->rows_put++) {
        const row *one = &self->held[self->rows_put];
        char *id = self->ids + self->rows_put * ID_LENGTH;
        const char *head = PyBytes_AS_STRING(one->head);
        if (one->head != last) { /* runs share their head */
            last = one->head;
            front = (size_t)PyBytes_GET_SIZE(one->head) - MD_LENGTH;
            memcpy(self->data, head + MD_LENGTH, front);
            wanted = !r->keyed && has_identity(head) ? r->identity : r->options;
        }
        memcpy(md, head, MD_LENGTH);
        memcpy(md + AT_PRIORITY, &r->priority, 4);
        memcpy(md + AT_PERSISTENCE, &r->persistent, 4);
        if (r->keyed) {
            int32_t own = FEEDBACK_FIRST + (int32_t)(front << KEY_BITS | (size_t)r->key_length);
            memcpy(md + AT_FEEDBACK, &own, 4);
            memcpy(md + AT_MSG_ID, id, ID_LENGTH);
            memcpy(md + AT_CORREL_ID, r->key, ID_LENGTH);
        }
        memcpy(options, wanted, PMO_LENGTH);
        size_t length = (size_t)PyBytes_GET_SIZE(one->body);
        memcpy(self->data + front, PyBytes_AS_STRING(one->body), length);
        self->put(self->connection, r->handle, md, options, (int32_t)(front + length), self->data, &self->comp_code, &self->reason);
        if (refused(self, PUT)) return 1;
        memcpy(id, md + AT_MSG_ID, ID_LENGTH);
    }
    return 0;
}

static void carry_out(Carrier *self)
{
    self->stage = DONE;
    self->rows_put = 0;
    self->comp_code = self->reason = 0;
    if (self->mark.there && mark(self)) return;
    for (Py_ssize_t i = 0; i < self->n_runs; i++)
        if (put_run(self, &self->runs[i])) return;
    if (!self->commits) return;
    self->commit(self->connection, &self->comp_code, &self->reason);
    refused(self, COMMIT);
}

/* ... up to here. */

static void let_go(Carrier *self)
{
    Py_ssize_t rows = self->n_rows;
    self->n_rows = self->n_runs = 0;
    for (Py_ssize_t i = 0; i < rows; i++) {
        Py_DECREF(self->held[i].head);
        Py_DECREF(self->held[i].body);
    }
}

static int copied(char *to, const Py_buffer *from, Py_ssize_t length)
{
    if (from->len != length) {
        PyErr_Format(PyExc_ValueError, "a structure of %zd bytes where %zd are needed", from->len, length);
        return -1;
    }
    memcpy(to, from->buf, (size_t)length);
    return 0;
}

static int patch_id(char *md, PyObject *id)
{
    if (!PyBytes_Check(id) || PyBytes_GET_SIZE(id) != ID_LENGTH) {
        PyErr_SetString(PyExc_ValueError, "an identifier is 24 bytes");
        return -1;
    }
    memcpy(md + AT_MSG_ID, PyBytes_AS_STRING(id), ID_LENGTH);
    return 0;
}

/* (fence, handle to take by, descriptor, options, handle to put by, descriptor, options); the MsgIds to take and put */
static int load_marker(marker *m, PyObject *given, PyObject *taken, PyObject *offered)
{
    m->there = given != Py_None;
    if (!m->there) return 0;
    Py_buffer take = {0}, take_options = {0}, put = {0}, put_options = {0};
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a marker is a tuple or None");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "piy*y*iy*y*", &m->fence, &m->in, &take, &take_options, &m->out, &put, &put_options)) return -1;
    m->take = taken != Py_None;
    int failed = copied(m->take_md, &take, MD_LENGTH) || copied(m->take_options, &take_options, GMO_LENGTH);
    failed = failed || copied(m->put_md, &put, MD_LENGTH) || copied(m->put_options, &put_options, PMO_LENGTH);
    PyBuffer_Release(&take);
    PyBuffer_Release(&take_options);
    PyBuffer_Release(&put);
    PyBuffer_Release(&put_options);
    return failed || (m->take && patch_id(m->take_md, taken) < 0) ? -1 : patch_id(m->put_md, offered);
}

static int grow(void **memory, Py_ssize_t *room, Py_ssize_t wanted, size_t each)
{
    if (wanted <= *room) return 0;
    Py_ssize_t more = wanted + wanted / 2;
    void *found = PyMem_RawRealloc(*memory, (size_t)more * each);
    if (found == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *memory = found;
    *room = more;
    return 0;
}

static int more_rows(Carrier *self, Py_ssize_t wanted)
{
    Py_ssize_t room = self->room_rows;
    return grow((void **)&self->ids, &room, wanted, ID_LENGTH) || grow((void **)&self->held, &self->room_rows, wanted, sizeof(row));
}

static int load_row(Carrier *self, PyObject *head, PyObject *body)
{
    if (!PyBytes_Check(head) || !PyBytes_Check(body) || PyBytes_GET_SIZE(head) < MD_LENGTH) {
        PyErr_SetString(PyExc_TypeError, "a row is a head of 364 bytes or more, and a body");
        return -1;
    }
    Py_ssize_t length = PyBytes_GET_SIZE(head) - MD_LENGTH + PyBytes_GET_SIZE(body);
    if (length > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "longer than a message can be");
        return -1;
    }
    if (grow((void **)&self->data, &self->room_data, length + 1, 1) < 0) return -1;
    row *one = &self->held[self->n_rows++];
    one->head = Py_NewRef(head);
    one->body = Py_NewRef(body);
    return 0;
}

/* (handle, priority, persistent, heads, bodies, first row, options, options with identity, key or None, identifiers) */
static int load_run(Carrier *self, PyObject *given)
{
    run *r = &self->runs[self->n_runs];
    PyObject *heads, *bodies, *key;
    Py_ssize_t first;
    Py_buffer options = {0}, identity = {0}, ids = {0};
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a run is a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "iipO!O!ny*y*Oy*", &r->handle, &r->priority, &r->persistent, &PyList_Type, &heads, &PyList_Type,
                          &bodies, &first, &options, &identity, &key, &ids))
        return -1;
    int failed = copied(r->options, &options, PMO_LENGTH) || copied(r->identity, &identity, PMO_LENGTH);
    Py_ssize_t rows = PyList_GET_SIZE(heads) - first;
    r->keyed = key != Py_None;
    if (!failed && (first < 0 || rows < 0 || PyList_GET_SIZE(bodies) != PyList_GET_SIZE(heads) ||
                    (r->keyed && (!PyBytes_Check(key) || ids.len != rows * ID_LENGTH)))) {
        PyErr_SetString(PyExc_ValueError, "the columns of a run have different lengths");
        failed = 1;
    }
    failed = failed || more_rows(self, self->n_rows + rows);
    if (!failed && r->keyed) {
        r->key_length = PyBytes_GET_SIZE(key) < ID_LENGTH ? PyBytes_GET_SIZE(key) : ID_LENGTH;
        memset(r->key, 0, ID_LENGTH);
        memcpy(r->key, PyBytes_AS_STRING(key), (size_t)r->key_length);
        memcpy(self->ids + self->n_rows * ID_LENGTH, ids.buf, (size_t)ids.len);
    }
    PyBuffer_Release(&options);
    PyBuffer_Release(&identity);
    PyBuffer_Release(&ids);
    r->rows = rows;
    self->n_runs++;
    for (Py_ssize_t i = 0; !failed && i < rows; i++)
        failed = load_row(self, PyList_GET_ITEM(heads, first + i), PyList_GET_ITEM(bodies, first + i));
    return failed ? -1 : 0;
}

/* connection, marker or None, MsgId of the one to take or None, of the one to put, runs, whether to commit */
static int load(Carrier *self, PyObject *args)
{
    PyObject *given, *taken, *offered, *runs;
    if (!PyArg_ParseTuple(args, "iOOOO!p", &self->connection, &given, &taken, &offered, &PyList_Type, &runs, &self->commits)) return -1;
    if (load_marker(&self->mark, given, taken, offered) < 0) return -1;
    if (grow((void **)&self->runs, &self->room_runs, PyList_GET_SIZE(runs), sizeof(run)) < 0) return -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(runs); i++)
        if (load_run(self, PyList_GET_ITEM(runs, i)) < 0) {
            let_go(self);
            return -1;
        }
    return 0;
}

/* The identifiers of the rows that were put, a list for each run. */
static PyObject *identifiers(const Carrier *self, Py_ssize_t *failed_run, Py_ssize_t *into)
{
    PyObject *all = PyList_New(self->n_runs);
    Py_ssize_t at = 0;
    *failed_run = *into = 0;
    for (Py_ssize_t i = 0; all != NULL && i < self->n_runs; i++) {
        Py_ssize_t left = self->rows_put - at, rows = self->runs[i].rows < left ? self->runs[i].rows : left;
        if (self->runs[i].rows > left) *into = *failed_run == i ? rows : *into;
        else if (*failed_run == i) *failed_run = i + 1;
        PyObject *ids = PyList_New(rows);
        if (ids == NULL) {
            Py_CLEAR(all);
            break;
        }
        PyList_SET_ITEM(all, i, ids);
        for (Py_ssize_t j = 0; j < rows; j++, at++) {
            PyObject *id = PyBytes_FromStringAndSize(self->ids + at * ID_LENGTH, ID_LENGTH);
            if (id == NULL) {
                Py_CLEAR(all);
                break;
            }
            PyList_SET_ITEM(ids, j, id);
        }
        if (all == NULL) break;
    }
    return all;
}

static PyObject *what_became(Carrier *self)
{
    Py_ssize_t at_run, into;
    PyObject *ids = identifiers(self, &at_run, &into);
    let_go(self);
    atomic_store(&self->state, IDLE);
    if (ids == NULL) return NULL;
    return Py_BuildValue("inniiN", (int)self->stage, at_run, into, (int)self->comp_code, (int)self->reason, ids);
}

PyDoc_STRVAR(carry_doc,
"carry(connection, marker, taken, offered, runs, commit) -> (stage, run, rows of it, completion code, reason, identifiers by run)\n\n"
"Make these calls on this thread.");

static PyObject *carry(Carrier *self, PyObject *args)
{
    if (atomic_load(&self->state) != IDLE || self->parked) {
        PyErr_SetString(PyExc_RuntimeError, "a unit is under way");
        return NULL;
    }
    if (load(self, args) < 0) return NULL;
    atomic_store(&self->state, POSTED);
    Py_BEGIN_ALLOW_THREADS
    carry_out(self);
    Py_END_ALLOW_THREADS
    return what_became(self);
}

static long now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000L + at.tv_nsec;
}

/* The posted unit is committed or refused: wake the reactor if it waits, otherwise write to its descriptor. */
static void tell_reactor(Carrier *self, enum state state)
{
    const uint64_t one = 1;
    int told = self->told;
    atomic_store(&self->state, (int)state); /* from here on the carrier is the reactor's, unless the unit was refused */
    if (atomic_exchange(&self->reactor_waits, 0)) sem_post(&self->through);
    else if (state == CARRIED && told >= 0 && write(told, &one, sizeof one) < 0) return; /* full: readable already */
}

static int is_worth(attempts *of) { return of->every == 1 || ++of->left_out >= of->every; }

static void tried(attempts *of, int well)
{
    of->every = well ? 1 : of->every < MOST_LEFT_OUT ? 2 * of->every : MOST_LEFT_OUT;
    of->left_out = 0;
}

#ifdef __linux__
/* Waking a thread on another core takes an interrupt, which on a virtual machine can take longer than a small unit of
 * work; on the same core it is a context switch. So while the reactor waits for units, the parked thread is pinned to
 * the reactor's core, which is idle meanwhile. */
static void pin_parked_thread(Carrier *self)
{
    int core = sched_getcpu();
    if (core == self->pinned_core || core < 0 || core >= CPU_SETSIZE) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (self->pinned_core < 0 && sched_getaffinity(self->thread, sizeof self->anywhere, &self->anywhere) != 0) return;
    if (sched_setaffinity(self->thread, sizeof one, &one) == 0) self->pinned_core = core;
}

static void unpin(Carrier *self)
{
    if (self->pinned_core < 0) return;
    self->pinned_core = -1;
    sched_setaffinity(self->thread, sizeof self->anywhere, &self->anywhere);
}
#else
static void pin_parked_thread(Carrier *Py_UNUSED(self)) {}
static void unpin(Carrier *Py_UNUSED(self)) {}
#endif

/* Wait for the posted unit, LONGEST_REACTOR_WAIT at most. */
static void wait_for_posted(Carrier *self)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LONGEST_REACTOR_WAIT;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    while (sem_timedwait(&self->through, &until) != 0) {
        if (errno == EINTR) continue;
        if (atomic_exchange(&self->reactor_waits, 0)) {
            tried(&self->waits, 0);
            return;
        }
        until.tv_sec += 10; /* the other thread has set it to 0 and is about to post */
    }
    tried(&self->waits, 1);
}

static int is_prompt(Carrier *self)
{
    long takes = (long)(self->n_rows + AROUND) * atomic_load(&self->call_ns);
    if (takes >= LONG) return 0;
    if (self->n_rows <= FEW && takes < PROMPT) return is_worth(&self->waits);
    if (takes >= 2 * atomic_load(&self->wake_ns) || ++self->unmeasured % MEASURE == 0) return 0;
    return is_worth(&self->waits);
}

static void averaged(atomic_long *mean, long value)
{
    long so_far = atomic_load(mean);
    atomic_store(mean, so_far + (value - so_far) / 8);
}

PyDoc_STRVAR(post_doc,
"post(connection, marker, taken, offered, runs, commit) -> int\n\n"
"Have the parked thread make these calls. 0: no thread is parked, or the last result was not taken; 1: the descriptor\n"
"will tell when they are made; 2: they are made, because the caller waited (a fifth of a millisecond at most).");

static PyObject *post(Carrier *self, PyObject *args)
{
    if (!self->parked || atomic_load(&self->state) != IDLE) return PyLong_FromLong(0);
    if (load(self, args) < 0) return NULL;
    int waits = is_prompt(self);
    if (waits) pin_parked_thread(self);
    else unpin(self);
    self->posted = waits ? 0 : now();
    atomic_store(&self->reactor_waits, waits);
    atomic_store(&self->state, POSTED);
    sem_post(&self->wakes);
    if (waits) {
        wait_for_posted(self); /* with the interpreter's lock, which another thread could keep for much longer */
        if (atomic_load(&self->state) == CARRIED) return PyLong_FromLong(2);
        unpin(self);
    }
    return PyLong_FromLong(1);
}

/* Park until there is something for Python to do. */
static enum back park(Carrier *self, const struct timespec *until)
{
    for (;;) {
        if (sem_timedwait(&self->wakes, until) != 0) {
            if (errno == EINTR) continue;
            return TIMED_OUT;
        }
        if (atomic_load(&self->state) != POSTED) return WOKEN;
        long began = now();
        if (self->posted) averaged(&self->wake_ns, began - self->posted);
        carry_out(self);
        averaged(&self->call_ns, (now() - began) / (long)(self->rows_put + AROUND));
        int refused = self->stage != DONE;
        tell_reactor(self, refused ? STOPPED : CARRIED);
        if (refused) return REFUSED;
    }
}

PyDoc_STRVAR(wait_doc,
"wait(seconds) -> int\n\n"
"Park this thread and carry out what is posted. 0: woken by wake(), 1: the time is over, 2: something was refused.");

static PyObject *wait_for(Carrier *self, PyObject *args)
{
    double seconds;
    if (!PyArg_ParseTuple(args, "d", &seconds)) return NULL;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    seconds = seconds < 0 ? 0 : seconds > LONGEST_WAIT ? LONGEST_WAIT : seconds;
    int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    enum back back;
#ifdef __linux__
    self->thread = (pid_t)syscall(SYS_gettid);
#endif
    self->parked = 1;
    do {
        Py_BEGIN_ALLOW_THREADS
        back = park(self, &until);
        Py_END_ALLOW_THREADS
    } while (back != REFUSED && atomic_load(&self->state) == POSTED); /* posted while waiting for the lock */
    self->parked = 0;
    unpin(self);
    return PyLong_FromLong(back);
}

PyDoc_STRVAR(wake_doc, "wake()\n\nBring the parked thread back to Python, after the posted unit if there is one.");

static PyObject *wake(Carrier *self, PyObject *Py_UNUSED(none))
{
    sem_post(&self->wakes);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(take_doc,
"take(refused) -> tuple or None\n\n"
"The result of the posted unit, as of carry(). None: not finished, or taken already; a refused one only if `refused`.");

static PyObject *take(Carrier *self, PyObject *refusals)
{
    int asked = PyObject_IsTrue(refusals), state = atomic_load(&self->state);
    if (asked < 0) return NULL;
    if (state != CARRIED && !(asked && state == STOPPED)) Py_RETURN_NONE;
    return what_became(self);
}

PyDoc_STRVAR(tell_doc, "tell(descriptor)\n\nThe eventfd to write to when a posted unit is committed.");

static PyObject *tell(Carrier *self, PyObject *descriptor)
{
    int told = PyObject_AsFileDescriptor(descriptor);
    if (told < 0) return NULL;
    self->told = told;
    Py_RETURN_NONE;
}

static PyObject *new_carrier(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"put", "get", "commit", NULL};
    unsigned long long puts, gets, commits;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KKK", names, &puts, &gets, &commits)) return NULL;
    Carrier *self = (Carrier *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->put = (put_call)(uintptr_t)puts;
    self->get = (get_call)(uintptr_t)gets;
    self->commit = (commit_call)(uintptr_t)commits;
    self->told = -1;
#ifdef __linux__
    self->pinned_core = -1;
#endif
    self->waits.every = 1;
    atomic_store(&self->call_ns, PROMPT); /* until it has been measured */
    sem_init(&self->wakes, 0, 0);
    sem_init(&self->through, 0, 0);
    return (PyObject *)self;
}

static void free_carrier(Carrier *self)
{
    let_go(self);
    PyMem_RawFree(self->runs);
    PyMem_RawFree(self->held);
    PyMem_RawFree(self->ids);
    PyMem_RawFree(self->data);
    sem_destroy(&self->wakes);
    sem_destroy(&self->through);
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"carry", (PyCFunction)carry, METH_VARARGS, carry_doc},
    {"post", (PyCFunction)post, METH_VARARGS, post_doc},
    {"wait", (PyCFunction)wait_for, METH_VARARGS, wait_doc},
    {"wake", (PyCFunction)wake, METH_NOARGS, wake_doc},
    {"take", (PyCFunction)take, METH_O, take_doc},
    {"tell", (PyCFunction)tell, METH_O, tell_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, new_carrier},
    {Py_tp_dealloc, free_carrier},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {"gateway.backends.ibm._calls.Carrier", sizeof(Carrier), 0, Py_TPFLAGS_DEFAULT, slots};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_calls", "The MQI calls of a unit of work.", -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__calls(void)
{
    if (check_sources() < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    PyObject *type = PyType_FromSpec(&spec);
    if (made == NULL || type == NULL || PyModule_AddObject(made, "Carrier", type) < 0) {
        Py_XDECREF(made);
        Py_XDECREF(type);
        return NULL;
    }
    return made;
}
