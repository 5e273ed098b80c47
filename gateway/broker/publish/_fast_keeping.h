/*
 * What is retained: the last publication of each topic of those that a connection has sent in a turn. See keeping.py.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

static PyObject *s_keeping, *s_keep, *s_have_kept;

#define MOST_KEPT 500 /* topics of one client for which something is retained at once */

/*
 * Whether all that has arrived could be retained, which is asked once in a turn, and one commit takes more records: then it
 * is enough to retain the last of each topic. -1: an error is set.
 */
static int can_keep(const taking *of)
{
    keeping *with = &of->turn->keeping;
    if (with->asked == NULL) {
        PyObject *said = PyObject_CallMethodNoArgs(of->turn->lane, s_keeping);
        if (said == NULL) return -1;
        if (said != Py_None && !PyArg_ParseTuple(said, "O!O!O!n", &PyDict_Type, &with->records, &PyLong_Type, &with->number,
                                                 &PyDict_Type, &with->replaces, &with->most)) {
            Py_DECREF(said);
            return -1;
        }
        with->asked = said;
    }
    return with->asked != Py_None && PyDict_GET_SIZE(with->replaces) < with->most;
}

/* What was the last before becomes one of the others. */
static int keep_with_others(taking *of)
{
    if (of->kept == NULL && (of->kept = PyDict_New()) == NULL) return -1;
    PyObject *last = Py_BuildValue("y#y#", (const char *)of->kept_payload, of->kept_length, (const char *)of->kept_block, of->kept_block_length);
    int failed = last == NULL || PyDict_SetItem(of->kept, of->kept_route, last) < 0;
    Py_XDECREF(last);
    return failed ? -1 : 0;
}

/* The same of a publication of QoS 2 that is released. */
static int keep_released(taking *of, PyObject *route, const publication *one)
{
    if (of->kept_route != NULL && keep_with_others(of) < 0) return -1;
    Py_CLEAR(of->kept_route);
    if (of->kept == NULL && (of->kept = PyDict_New()) == NULL) return -1;
    PyObject *last = Py_BuildValue("y#y#", (const char *)one->payload, one->length, (const char *)one->block, one->block_length);
    int known = PyDict_Contains(of->kept, route);
    int failed = last == NULL || known < 0 || (known && PyDict_DelItem(of->kept, route) < 0) || PyDict_SetItem(of->kept, route, last) < 0;
    Py_XDECREF(last);
    return failed ? -1 : 0;
}

/* Whether it has a Topic Alias and no other property. */
static int is_alias(const publication *one)
{
    return one->block_length == ALIAS_LENGTH && one->block[0] == TOPIC_ALIAS;
}

static int keep(taking *of, PyObject *route, const publication *one)
{
    if (of->kept_route != route) {
        if (of->kept_route != NULL && keep_with_others(of) < 0) return -1;
        int known = of->kept != NULL ? PyDict_Contains(of->kept, route) : 0; /* the last one counts, also of a topic that has two routes */
        if (known < 0 || (known && PyDict_DelItem(of->kept, route) < 0)) return -1;
        Py_XSETREF(of->kept_route, Py_NewRef(route));
    }
    of->kept_payload = one->payload;
    of->kept_length = one->length;
    of->kept_block = one->block;
    of->kept_block_length = is_alias(one) ? 0 : one->block_length;
    return 0;
}

/* What replaces a record. A new reference. */
static PyObject *replacement(PyObject *name, PyObject *record)
{
    PyTypeObject *class = classes_of[A_REPLACE];
    PyObject *made = class->tp_alloc(class, 3);
    if (made == NULL) return NULL;
    PyTuple_SET_ITEM(made, 0, Py_NewRef(PyTuple_GET_ITEM(name, 0)));
    PyTuple_SET_ITEM(made, 1, Py_NewRef(PyTuple_GET_ITEM(name, 1)));
    PyTuple_SET_ITEM(made, 2, Py_NewRef(record));
    PyObject_GC_UnTrack(made); /* a string and bytes: in no cycle */
    return made;
}

/*
 * Retain a payload on a topic where the same client has retained one before with the same QoS, as Retained.again. 1: done;
 * 0: the lane does it; -1: an error is set.
 */
static int keep_again(const taking *of, PyObject *route, const unsigned char *payload, Py_ssize_t length)
{
    keeping *with = &of->turn->keeping;
    if (with->records == NULL) return 0;
    PyObject *topic = field(route, WIRE_TOPIC), *client_id = field(of->session, CLIENT_ID), *first = field(route, FIRST);
    if (topic == NULL || client_id == NULL || first == NULL) return -1;
    PyObject *latest = PyDict_GetItemWithError(with->records, topic);
    if (latest == NULL || !is_a(latest, A_LATEST)) return PyErr_Occurred() ? -1 : 0;
    PyObject *front = *place(latest, FRONT), *before = *place(latest, RECORD_SIZE), *name = *place(latest, RECORD_NAME), *qos = *place(latest, QOS);
    PyObject *node = *place(latest, NODE);
    if (length == 0 || *place(latest, WHOSE) != client_id || qos == NULL || as_long(qos) != (as_long(first) >> 1 & 3)) return PyErr_Occurred() ? -1 : 0;
    if (front == NULL || before == NULL || name == NULL || node == NULL || !PyBytes_CheckExact(front) || !PyLong_CheckExact(before) ||
        !PyTuple_CheckExact(name) || PyTuple_GET_SIZE(name) != 2 || !is_a(node, A_NODE))
        return 0;
    PyObject *size = PyLong_FromSsize_t(length);
    if (size == NULL) return -1;
    PyObject *record = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(front) + length);
    if (record == NULL) {
        Py_DECREF(size);
        return -1;
    }
    copy(copy(PyBytes_AS_STRING(record), PyBytes_AS_STRING(front), PyBytes_GET_SIZE(front)), (const char *)payload, length);
    PyObject *made = replacement(name, record);
    if (made == NULL || PyDict_SetItem(with->replaces, name, made) < 0) {
        Py_XDECREF(made);
        Py_DECREF(record);
        Py_DECREF(size);
        return -1;
    }
    Py_DECREF(made);
    with->more += length - as_long(before);
    Py_XSETREF(*place(latest, RECORD_SIZE), size);
    Py_XSETREF(*place(node, KEPT), Py_NewRef(Py_None)); /* the publication that is older */
    Py_XSETREF(*place(latest, RECORD), record);
    Py_XSETREF(*place(latest, RECORD_NUMBER), Py_NewRef(with->number));
    return 1;
}

/* Retain what was kept of a connection. */
static int keep_all(taking *of)
{
    if (of->kept_route == NULL && of->kept == NULL) return 0;
    int done = 0;
    if (of->kept == NULL) {
        done = of->kept_block_length == 0 ? keep_again(of, of->kept_route, of->kept_payload, of->kept_length) : 0;
        if (done != 0) return done < 0 ? -1 : 0;
    }
    if (of->kept_route != NULL && keep_with_others(of) < 0) return -1;
    PyObject *others = PyDict_New(), *route, *last, *payload, *block;
    Py_ssize_t at = 0;
    if (others == NULL) return -1;
    while (done >= 0 && PyDict_Next(of->kept, &at, &route, &last)) {
        payload = PyTuple_GET_ITEM(last, 0);
        block = PyTuple_GET_ITEM(last, 1);
        done = 0;
        if (PyDict_GET_SIZE(others) == 0 && PyBytes_GET_SIZE(block) == 0) /* in order, as they may be of one topic */
            done = keep_again(of, route, (const unsigned char *)PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload));
        if (done == 0 && PyDict_SetItem(others, route, last) < 0) done = -1;
    }
    if (done >= 0 && PyDict_GET_SIZE(others) > 0) {
        PyObject *said = PyObject_CallMethodObjArgs(of->turn->lane, s_keep, of->connection, others, NULL);
        if (said == NULL) done = -1;
        Py_XDECREF(said);
    }
    Py_DECREF(others);
    return done < 0 ? -1 : 0;
}

/* Say how much more is retained, also where something has failed: an error that is set stays set. */
static int leave_keeping(turn *turn)
{
    PyObject *type, *error, *trace, *said = Py_None;
    PyErr_Fetch(&type, &error, &trace);
    PyObject *more = turn->keeping.more != 0 ? PyLong_FromSsize_t(turn->keeping.more) : NULL;
    if (turn->keeping.more != 0) {
        said = more == NULL ? NULL : PyObject_CallMethodOneArg(turn->lane, s_have_kept, more);
        Py_XDECREF(more);
        Py_XDECREF(said);
    }
    Py_CLEAR(turn->keeping.asked);
    if (type != NULL) PyErr_Restore(type, error, trace);
    return said == NULL ? -1 : 0;
}
