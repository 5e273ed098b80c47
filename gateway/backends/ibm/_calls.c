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
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "../../built_from.h"
#include "_unit_of_work.h"

BUILT_FROM_THIS_FILE;

/* The reactor waits for a unit it has posted, instead of going on, in one of two cases (nanoseconds): */
#define PROMPT 50000 /* the unit has at most FEW rows and its calls are expected to take less than this; */
#define FEW 20       /* with more rows there is input to read meanwhile; */
#define LONG 100000  /* or they take less than this, and less than waking a thread on another core twice. */
#define LONGEST_REACTOR_WAIT 200000 /* It never waits longer. */
#define MEASURE 256 /* Once in so many units of the second case it goes on, to measure again how long waking takes. */
#define MOST_LEFT_OUT 1024

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
