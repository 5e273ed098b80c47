/*
 * A unit of work for the MQI: what it is loaded from with the interpreter's lock, its calls without it, what became of it.
 */
#ifndef MQGATE_UNIT_OF_WORK_H
#define MQGATE_UNIT_OF_WORK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

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

#endif
