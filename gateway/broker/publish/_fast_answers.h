/*
 * What is done for each connection when a commit has returned: see answered.py, which does the same in Python.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

static PyObject *s_join;

/* Whether the answers of a connection are written as they are; -1: an error is set. */
static int is_ordinary(PyObject *connection, PyObject *answers)
{
    if (!is_a(connection, A_CONNECTION) || !PyList_CheckExact(answers)) {
        PyErr_SetString(PyExc_TypeError, "answers are lists of bytes by connection");
        return -1;
    }
    PyObject *sent = field(connection, CONNACK_SENT), *out = field(connection, OUT);
    long state = number(connection, STATE);
    if (sent == NULL || out == NULL || PyErr_Occurred()) return -1;
    return sent == Py_True && PyList_CheckExact(out) && PyList_GET_SIZE(out) == 0 && state != closed_state;
}

/* All answers of a connection: a new reference. */
static PyObject *joined(PyObject *empty, PyObject *answers)
{
    if (PyList_GET_SIZE(answers) == 1) return Py_NewRef(PyList_GET_ITEM(answers, 0));
    return PyObject_CallMethodOneArg(empty, s_join, answers);
}

PyDoc_STRVAR(ordinary_doc,
"ordinary(replies) -> (connections, links, datas, others)\n\n"
"Connections whose answers are written as they are, with their links and bytes, and the other connections.");

static PyObject *ordinary(PyObject *Py_UNUSED(self), PyObject *replies)
{
    if (!PyDict_CheckExact(replies)) {
        PyErr_SetString(PyExc_TypeError, "ordinary(dict)");
        return NULL;
    }
    PyObject *connections = PyList_New(0), *links = PyList_New(0), *datas = PyList_New(0), *others = PyList_New(0);
    PyObject *empty = PyBytes_FromStringAndSize(NULL, 0), *connection, *answers;
    int failed = connections == NULL || links == NULL || datas == NULL || others == NULL || empty == NULL;
    for (Py_ssize_t at = 0; !failed && PyDict_Next(replies, &at, &connection, &answers);) {
        int is_one = is_ordinary(connection, answers);
        PyObject *link = is_one == 1 ? field(connection, LINK) : NULL;
        if (is_one == 0) failed = PyList_Append(others, connection) < 0;
        else failed = link == NULL || PyList_Append(connections, connection) < 0 || PyList_Append(links, link) < 0 ||
                      append(datas, joined(empty, answers)) < 0;
    }
    Py_XDECREF(empty);
    if (!failed) return Py_BuildValue("NNNN", connections, links, datas, others);
    Py_XDECREF(connections);
    Py_XDECREF(links);
    Py_XDECREF(datas);
    Py_XDECREF(others);
    return NULL;
}

PyDoc_STRVAR(committed_doc,
"committed(pending) -> None\n\n"
"So many publications of each connection are committed: they take no room any more, and count as received.");

static PyObject *committed(PyObject *Py_UNUSED(self), PyObject *pending)
{
    if (!PyDict_CheckExact(pending)) {
        PyErr_SetString(PyExc_TypeError, "committed(dict)");
        return NULL;
    }
    PyObject *connection, *value;
    for (Py_ssize_t at = 0; PyDict_Next(pending, &at, &connection, &value);) {
        Py_ssize_t count = as_long(value);
        if (count == -1 && PyErr_Occurred()) return NULL;
        if (!is_a(connection, A_CONNECTION)) return PyErr_Format(PyExc_TypeError, "counts are by connection");
        PyObject *session = field_of(connection, SESSION, A_SESSION);
        if (session == NULL || add_to_number(connection, PENDING, -count) < 0 || add_to_number(session, RECEIVED, count) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}
