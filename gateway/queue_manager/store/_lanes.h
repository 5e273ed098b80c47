/*
 * What a frame does to many lanes: see lanes.py, which does the same in Python. Slots are found by _replaced.h.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { RUN = 3 }; /* first number, count, place */

static PyObject *s_frombytes;
static PyObject *no_key; /* the key of the messages of applications */

static int name_attributes(void)
{
    if ((s_frombytes = PyUnicode_InternFromString("frombytes")) == NULL) return -1;
    return (no_key = PyBytes_FromStringAndSize(NULL, 0)) == NULL ? -1 : 0;
}

/* What is in a slot: borrowed; NULL with an error set: nothing. */
static PyObject *filled(PyObject **slot)
{
    if (slot != NULL && *slot == NULL) PyErr_SetString(PyExc_AttributeError, "a slot of a queue or lane is empty");
    return slot == NULL ? NULL : *slot;
}

/* The first lane of a key, and its queue: borrowed. NULL: there is none, or an error is set. */
static PyObject *lane_of_key(PyObject *queues, PyObject *name, PyObject *key, PyObject **queue)
{
    *queue = PyDict_GetItemWithError(queues, name);
    PyObject *lanes = *queue != NULL ? filled(slot_of_queue(*queue, QUEUE_LANES)) : NULL;
    if (lanes == NULL) return NULL;
    if (PyDict_Check(lanes)) return PyDict_GetItemWithError(lanes, key);
    PyErr_SetString(PyExc_TypeError, "the lanes of a queue are a dict");
    return NULL;
}

static int add_depth(PyObject **slot, PyObject *count)
{
    PyObject *before = filled(slot), *sum = before != NULL ? PyNumber_Add(before, count) : NULL;
    if (sum == NULL) return -1;
    Py_SETREF(*slot, sum);
    return 0;
}

/* Whether these runs are some, and end with one that begins before the number; -1: an error is set. */
static int end_before(PyObject *runs, unsigned long long number)
{
    Py_buffer view;
    if (PyObject_GetBuffer(runs, &view, PyBUF_SIMPLE) < 0) return -1;
    uint64_t last = 0;
    const Py_ssize_t run = RUN * (Py_ssize_t)sizeof last;
    int any = view.len >= run;
    if (any) memcpy(&last, (const char *)view.buf + view.len - run, sizeof last);
    PyBuffer_Release(&view);
    return any && last <= number;
}

/* Add a run to the end of a lane: 1; 0: that is not where it belongs; -1: an error is set. */
static int append_run(PyObject *lane, PyObject *rank, unsigned long long first, unsigned long long count, unsigned long long place)
{
    PyObject *its_rank = filled(slot_of_lane(lane, LANE_RANK)), *runs = its_rank != NULL ? filled(slot_of_lane(lane, LANE_RUNS)) : NULL;
    int done = runs == NULL ? -1 : PyObject_RichCompareBool(its_rank, rank, Py_EQ);
    if (done == 1) done = end_before(runs, first);
    if (done == 1) {
        uint64_t run[RUN] = {first, count, place};
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)run, sizeof run);
        PyObject *added = bytes != NULL ? PyObject_CallMethodOneArg(runs, s_frombytes, bytes) : NULL;
        done = added == NULL ? -1 : 1;
        Py_XDECREF(bytes);
        Py_XDECREF(added);
    }
    return done;
}

/* The same of a group ((queue, key, rank), count), whose count is returned in *rows. */
static int append_group(PyObject *queues, PyObject *group, unsigned long long first, unsigned long long place, unsigned long long *rows)
{
    PyObject *name = PyTuple_Check(group) && PyTuple_GET_SIZE(group) == 2 ? PyTuple_GET_ITEM(group, 0) : NULL;
    if (name == NULL || !PyTuple_Check(name) || PyTuple_GET_SIZE(name) != 3) {
        PyErr_SetString(PyExc_TypeError, "a group is the name of a lane and a count");
        return -1;
    }
    PyObject *count = PyTuple_GET_ITEM(group, 1);
    *rows = PyLong_AsUnsignedLongLong(count);
    PyObject *queue, *lane = PyErr_Occurred() ? NULL : lane_of_key(queues, PyTuple_GET_ITEM(name, 0), PyTuple_GET_ITEM(name, 1), &queue);
    int done = lane != NULL ? append_run(lane, PyTuple_GET_ITEM(name, 2), first, *rows, place) : PyErr_Occurred() ? -1 : 0;
    if (done == 1 && (add_depth(slot_of_lane(lane, LANE_DEPTH), count) < 0 || add_depth(slot_of_queue(queue, QUEUE_DEPTH), count) < 0)) done = -1;
    return done;
}

PyDoc_STRVAR(append_doc,
"append(queues, groups, at, first, place, /) -> (at, rows)\n\n"
"Add the rows of groups from `at` on to the ends of their lanes, as far as these have runs already; where that ends, and\n"
"how many rows these were.");

static PyObject *append(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 5 || !PyDict_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "append(dict, sequence, int, int, int)");
        return NULL;
    }
    Py_ssize_t at = PyLong_AsSsize_t(args[2]);
    unsigned long long first = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(args[3]), rows = 0, count = 0;
    unsigned long long place = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(args[4]);
    if (PyErr_Occurred()) return NULL;
    PyObject *groups = PySequence_Fast(args[1], "groups are a sequence");
    int done = groups == NULL || at < 0 ? -1 : 1;
    if (groups != NULL && at < 0) PyErr_SetString(PyExc_ValueError, "groups are counted from 0");
    while (done == 1 && at < PySequence_Fast_GET_SIZE(groups)) {
        PyObject *group = Py_NewRef(PySequence_Fast_GET_ITEM(groups, at));
        done = append_group(args[0], group, first + rows, place + rows, &count);
        Py_DECREF(group);
        if (done == 1) {
            at++;
            rows += count;
        }
    }
    Py_XDECREF(groups);
    return done < 0 ? NULL : Py_BuildValue("nK", at, rows);
}

/* How many messages a lane and those below it have: a new reference. */
static PyObject *depth_from(PyObject *lane)
{
    PyObject *sum = PyLong_FromLong(0);
    while (sum != NULL && lane != NULL && lane != Py_None) {
        PyObject *depth = filled(slot_of_lane(lane, LANE_DEPTH));
        Py_SETREF(sum, depth != NULL ? PyNumber_Add(sum, depth) : NULL);
        lane = sum != NULL ? filled(slot_of_lane(lane, LANE_LOWER)) : NULL;
    }
    if (lane == NULL) Py_CLEAR(sum);
    return sum;
}

PyDoc_STRVAR(depths_doc,
"depths(queues, names, /) -> list of int\n\nHow many messages without a key are on each of these queues.");

static PyObject *depths(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2 || !PyDict_Check(args[0]) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "depths(dict, list)");
        return NULL;
    }
    PyObject *found = PyList_New(0);
    for (Py_ssize_t at = 0; found != NULL && at < PyList_GET_SIZE(args[1]); at++) {
        PyObject *queue, *lane = lane_of_key(args[0], PyList_GET_ITEM(args[1], at), no_key, &queue);
        PyObject *depth = lane != NULL ? depth_from(lane) : PyErr_Occurred() ? NULL : PyLong_FromLong(0);
        if (depth == NULL || PyList_Append(found, depth) < 0) Py_CLEAR(found);
        Py_XDECREF(depth);
    }
    return found;
}
