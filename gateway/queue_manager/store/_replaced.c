/*
 * State records that are replaced: what is done for each of them. replaced.py has the same functions in Python; the tests
 * compare the two.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "_replaced.h"

BUILT_FROM_THIS_FILE;

/* Little-endian numbers as a frame has them. */
static unsigned char *put_32(unsigned char *to, uint32_t number)
{
    for (int n = 0; n < 4; n++) *to++ = (unsigned char)(number >> 8 * n);
    return to;
}

static unsigned char *put_64(unsigned char *to, uint64_t number)
{
    for (int n = 0; n < 8; n++) *to++ = (unsigned char)(number >> 8 * n);
    return to;
}

/* -- records -- */

const char records_of_doc[] = PyDoc_STR(
"records_of(replaces, /) -> (dict, int)\n\n"
"Bodies by key, by queue, of a list of tuples of these three; and how many bytes the bodies are together.");

PyObject *records_of(PyObject *module, PyObject *replaces)
{
    (void)module;
    if (!PyList_Check(replaces)) {
        PyErr_SetString(PyExc_TypeError, "records_of(list)");
        return NULL;
    }
    PyObject *found = PyDict_New(), *queue = NULL, *records = NULL; /* the last two are borrowed */
    Py_ssize_t size = 0;
    int failed = found == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(replaces); i++) {
        PyObject *one = PyList_GET_ITEM(replaces, i);
        if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 3 || !PyUnicode_CheckExact(PyTuple_GET_ITEM(one, 0)) ||
            !PyBytes_CheckExact(PyTuple_GET_ITEM(one, 1)) ||
            (PyTuple_GET_ITEM(one, 2) != Py_None && !PyBytes_CheckExact(PyTuple_GET_ITEM(one, 2)))) {
            PyErr_SetString(PyExc_TypeError, "records_of(list of (str, bytes, bytes or None))");
            failed = 1;
            break;
        }
        if (PyTuple_GET_ITEM(one, 0) != queue) {
            queue = PyTuple_GET_ITEM(one, 0);
            records = PyDict_GetItemWithError(found, queue);
            if (records == NULL && !PyErr_Occurred() && (records = PyDict_New()) != NULL) {
                failed = PyDict_SetItem(found, queue, records) < 0;
                Py_DECREF(records);
            }
            if (failed || records == NULL) failed = 1;
        }
        PyObject *body = PyTuple_GET_ITEM(one, 2);
        if (!failed) failed = PyDict_SetItem(records, PyTuple_GET_ITEM(one, 1), body) < 0;
        if (body != Py_None) size += PyBytes_GET_SIZE(body);
    }
    if (failed) {
        Py_XDECREF(found);
        return NULL;
    }
    return Py_BuildValue("Nn", found, size);
}

/* -- lanes -- */

typedef struct {
    int count;
    const char *names[LANE_SLOTS];
    PyTypeObject *class; /* whose slots these are */
    Py_ssize_t offsets[LANE_SLOTS];
} layout;

static layout of_lanes = {LANE_SLOTS, {"runs", "start", "depth", "lower", "removed", "rank"}, NULL, {0}};
static layout of_queues = {QUEUE_SLOTS, {"lanes", "depth"}, NULL, {0}};

static int learn_class(layout *known, PyTypeObject *class)
{
    Py_ssize_t found[LANE_SLOTS] = {0};
    for (int i = 0; i < known->count; i++) {
        PyObject *descriptor = PyObject_GetAttrString((PyObject *)class, known->names[i]);
        if (descriptor == NULL) return -1;
        int is_slot = Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
        PyMemberDef *member = is_slot ? ((PyMemberDescrObject *)descriptor)->d_member : NULL;
        found[i] = member != NULL && member->type == T_OBJECT_EX ? member->offset : 0;
        Py_DECREF(descriptor); /* the class holds it */
        if (found[i] == 0) {
            PyErr_Format(PyExc_TypeError, "%s is not a slot of a queue or lane", known->names[i]);
            return -1;
        }
    }
    memcpy(known->offsets, found, sizeof found);
    Py_XSETREF(known->class, (PyTypeObject *)Py_NewRef(class));
    return 0;
}

/* NULL with an error set: the object has no such slots. */
static inline PyObject **slot_in(layout *known, PyObject *object, int which)
{
    if (!Py_IS_TYPE(object, known->class) && learn_class(known, Py_TYPE(object)) < 0) return NULL;
    return (PyObject **)((char *)object + known->offsets[which]);
}

PyObject **slot_of_lane(PyObject *lane, int which) { return slot_in(&of_lanes, lane, which); }

PyObject **slot_of_queue(PyObject *queue, int which) { return slot_in(&of_queues, queue, which); }

/* The same of a lane whose class is known. */
static PyObject *slot(PyObject *lane, int which) { return *(PyObject **)((char *)lane + of_lanes.offsets[which]); }

/* A slot that holds a small number; -1: it does not. */
static long small(PyObject *lane, int which)
{
    PyObject *value = slot(lane, which);
    if (value == NULL || !PyLong_CheckExact(value)) return -1;
    int overflow;
    return PyLong_AsLongAndOverflow(value, &overflow);
}

/*
 * The run (number, 1, place) of a lane of this rank that has one message and no other lane below it: 1, and the view is to be
 * released; 0: it has not; -1: an error is set.
 */
static int only_run(PyObject *lane, long rank, Py_buffer *view, uint64_t **run)
{
    if (slot_of_lane(lane, LANE_RUNS) == NULL) return -1;
    PyObject *removed = slot(lane, LANE_REMOVED);
    if (small(lane, LANE_DEPTH) != 1 || small(lane, LANE_RANK) != rank || slot(lane, LANE_LOWER) != Py_None) return 0;
    if (removed != Py_None && !(removed != NULL && PyAnySet_Check(removed) && PySet_GET_SIZE(removed) == 0)) return 0;
    long start = small(lane, LANE_START);
    if (start < 0 || slot(lane, LANE_RUNS) == NULL) return 0;
    if (PyObject_GetBuffer(slot(lane, LANE_RUNS), view, PyBUF_WRITABLE) < 0) return -1;
    if (view->len < (start + 3) * (Py_ssize_t)sizeof **run || (*run = (uint64_t *)view->buf + start)[1] != 1) {
        PyBuffer_Release(view);
        return 0;
    }
    return 1;
}

static int is_fast(PyObject *const *lists, int count)
{
    for (int i = 0; i < count; i++)
        if (!PyList_CheckExact(lists[i])) return 0;
    return 1;
}

const char stand_alone_doc[] = PyDoc_STR(
"stand_alone(lanes, rank, records, keys, numbers, bodies, /) -> dict\n\n"
"Append key, number of the one message there is, and body of each record that can be replaced in its place. Returns the\n"
"others.");

PyObject *stand_alone(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 6 || !PyDict_CheckExact(args[0]) || !PyLong_CheckExact(args[1]) || !PyDict_CheckExact(args[2]) || !is_fast(args + 3, 3)) {
        PyErr_SetString(PyExc_TypeError, "stand_alone(dict, int, dict, list, list, list)");
        return NULL;
    }
    long rank = PyLong_AsLong(args[1]);
    PyObject *others = PyDict_New(), *key, *body;
    Py_ssize_t at = 0;
    if (others == NULL || PyErr_Occurred()) {
        Py_XDECREF(others);
        return NULL;
    }
    while (PyDict_Next(args[2], &at, &key, &body)) {
        PyObject *lane = body != Py_None ? PyDict_GetItemWithError(args[0], key) : NULL;
        Py_buffer view;
        uint64_t *run;
        int fits = lane != NULL ? only_run(lane, rank, &view, &run) : PyErr_Occurred() ? -1 : 0;
        if (fits == 1) {
            PyObject *number = run[2] >> 63 ? NULL : PyLong_FromUnsignedLongLong(run[0]); /* VOLATILE: not persistent */
            fits = run[2] >> 63 ? 0 : -1;
            PyBuffer_Release(&view);
            if (number != NULL && PyList_Append(args[3], key) == 0 && PyList_Append(args[4], number) == 0 && PyList_Append(args[5], body) == 0)
                fits = 1;
            Py_XDECREF(number);
        }
        if (fits == 0 && PyDict_SetItem(others, key, body) < 0) fits = -1;
        if (fits < 0) {
            Py_DECREF(others);
            return NULL;
        }
    }
    return others;
}

/* -- what a frame says of them -- */

/* The number of a key's lane within its segment; what is not known is told by `define`, of (queue, key, rank). */
static int number_of_lane(PyObject *const *args, PyObject *key, uint32_t *lane)
{
    PyObject *known = args[4], *found = Py_XNewRef(PyDict_GetItemWithError(known, key));
    if (found == NULL && PyErr_Occurred()) return -1;
    if (found == NULL) {
        PyObject *name = PyTuple_Pack(3, args[0], key, args[1]);
        found = name != NULL ? PyObject_CallOneArg(args[5], name) : NULL;
        Py_XDECREF(name);
        if (found != NULL && PyDict_SetItem(known, key, found) < 0) Py_CLEAR(found);
    }
    unsigned long number = found != NULL ? PyLong_AsUnsignedLong(found) : 0;
    Py_XDECREF(found);
    if (PyErr_Occurred()) return -1;
    *lane = (uint32_t)number;
    return 0;
}

const char replaced_links_doc[] = PyDoc_STR(
"links(queue, rank, keys, numbers, known, define, /) -> (bytes, bytes)\n\n"
"The groups and the takes of records that are replaced: a message each. `known` are numbers of lanes by key; what is not\n"
"there `define` tells of a lane's name, and it is noted.");

PyObject *replaced_links(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 6 || !is_fast(args + 2, 2) || !PyDict_CheckExact(args[4]) || PyList_GET_SIZE(args[2]) != PyList_GET_SIZE(args[3])) {
        PyErr_SetString(PyExc_TypeError, "links(str, int, list, list, dict, callable)");
        return NULL;
    }
    Py_ssize_t rows = PyList_GET_SIZE(args[2]);
    PyObject *groups = PyBytes_FromStringAndSize(NULL, 8 * rows), *takes = PyBytes_FromStringAndSize(NULL, 16 * rows);
    unsigned char *group = groups != NULL ? (unsigned char *)PyBytes_AS_STRING(groups) : NULL;
    unsigned char *take = takes != NULL ? (unsigned char *)PyBytes_AS_STRING(takes) : NULL;
    int failed = groups == NULL || takes == NULL;
    for (Py_ssize_t row = 0; !failed && row < rows; row++) {
        uint32_t lane = 0;
        PyObject *key = Py_NewRef(PyList_GET_ITEM(args[2], row));
        failed = number_of_lane(args, key, &lane) < 0;
        Py_DECREF(key);
        if (!failed && (rows != PyList_GET_SIZE(args[2]) || rows != PyList_GET_SIZE(args[3]))) {
            PyErr_SetString(PyExc_RuntimeError, "a column has changed");
            failed = 1;
        }
        unsigned long long number = failed ? 0 : PyLong_AsUnsignedLongLong(PyList_GET_ITEM(args[3], row));
        if (failed || PyErr_Occurred()) {
            failed = 1;
            break;
        }
        group = put_32(put_32(group, lane), 1);
        take = put_64(put_32(put_32(take, lane), 1), number);
    }
    if (failed) {
        Py_XDECREF(groups);
        Py_XDECREF(takes);
        return NULL;
    }
    return Py_BuildValue("NN", groups, takes);
}

/* -- in the index -- */

static int order(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* Places that follow one another as (place, count), in order. */
static PyObject *runs_of_places(uint64_t *places, Py_ssize_t count)
{
    for (Py_ssize_t i = 1; i < count; i++)
        if (places[i] < places[i - 1]) {
            qsort(places, (size_t)count, sizeof *places, order);
            break;
        }
    PyObject *found = PyList_New(0);
    for (Py_ssize_t first = 0, end; found != NULL && first < count; first = end) {
        for (end = first + 1; end < count && places[end] == places[end - 1] + 1;) end++;
        PyObject *run = Py_BuildValue("Kn", (unsigned long long)places[first], end - first);
        if (run == NULL || PyList_Append(found, run) < 0) Py_CLEAR(found);
        Py_XDECREF(run);
    }
    return found;
}

const char put_in_place_doc[] = PyDoc_STR(
"put_in_place(lanes, rank, keys, numbers, first, place, /) -> (list of (int, int), list)\n\n"
"Have each lane of these keys hold, in the place of the one message with that number, the next one from `first` and `place` on.\n"
"Returns where those have been, as (place, count), and the rows of which this cannot be said: nothing is changed for these.");

PyObject *put_in_place(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 6 || !PyDict_CheckExact(args[0]) || !PyLong_CheckExact(args[1]) || !is_fast(args + 2, 2) ||
        PyList_GET_SIZE(args[2]) != PyList_GET_SIZE(args[3])) {
        PyErr_SetString(PyExc_TypeError, "put_in_place(dict, int, list, list, int, int)");
        return NULL;
    }
    long rank = PyLong_AsLong(args[1]);
    unsigned long long first = PyLong_AsUnsignedLongLong(args[4]), place = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    Py_ssize_t rows = PyList_GET_SIZE(args[2]), done = 0;
    uint64_t *places = PyMem_Malloc((size_t)(rows + 1) * sizeof *places);
    PyObject *others = places != NULL ? PyList_New(0) : PyErr_NoMemory();
    int failed = others == NULL;
    for (Py_ssize_t row = 0; !failed && row < rows; row++) {
        PyObject *lane = PyDict_GetItemWithError(args[0], PyList_GET_ITEM(args[2], row));
        unsigned long long number = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(PyList_GET_ITEM(args[3], row));
        Py_buffer view;
        uint64_t *run;
        int fits = PyErr_Occurred() ? -1 : lane == NULL ? 0 : only_run(lane, rank, &view, &run);
        if (fits == 1) {
            fits = run[0] == number;
            if (fits) {
                places[done++] = run[2];
                run[0] = first + (unsigned long long)row;
                run[2] = place + (unsigned long long)row;
            }
            PyBuffer_Release(&view);
        }
        if (fits == 0) {
            PyObject *other = PyLong_FromSsize_t(row);
            failed = other == NULL || PyList_Append(others, other) < 0;
            Py_XDECREF(other);
        }
        if (fits < 0) failed = 1;
    }
    PyObject *been = failed ? NULL : runs_of_places(places, done);
    PyMem_Free(places);
    if (been == NULL) {
        Py_XDECREF(others);
        return NULL;
    }
    return Py_BuildValue("NN", been, others);
}
