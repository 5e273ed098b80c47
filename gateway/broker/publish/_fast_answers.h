/*
 * What is done for each connection when a commit has returned: see answered.py, which does the same in Python.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

static PyObject *s_join, *s_tokens, *s_start, *s_step;

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

/* Shorten a list that was made longer than needed. */
static int cut(PyObject *list, Py_ssize_t length) { return length < PyList_GET_SIZE(list) ? PyList_SetSlice(list, length, PyList_GET_SIZE(list), NULL) : 0; }

PyDoc_STRVAR(ordinary_doc,
"ordinary(replies) -> (connections, links, datas, others)\n\n"
"Connections whose answers are written as they are, with their links and bytes, and the other connections.");

static PyObject *ordinary(PyObject *Py_UNUSED(self), PyObject *replies)
{
    if (!PyDict_CheckExact(replies)) {
        PyErr_SetString(PyExc_TypeError, "ordinary(dict)");
        return NULL;
    }
    Py_ssize_t most = PyDict_GET_SIZE(replies), count = 0;
    PyObject *connections = PyList_New(most), *links = PyList_New(most), *datas = PyList_New(most), *others = PyList_New(0);
    PyObject *empty = PyBytes_FromStringAndSize(NULL, 0), *connection, *answers;
    int failed = connections == NULL || links == NULL || datas == NULL || others == NULL || empty == NULL;
    for (Py_ssize_t at = 0; !failed && PyDict_Next(replies, &at, &connection, &answers);) {
        int is_one = is_ordinary(connection, answers);
        PyObject *link = is_one == 1 ? field(connection, LINK) : NULL, *data = link != NULL ? joined(empty, answers) : NULL;
        if (is_one == 0) failed = PyList_Append(others, connection) < 0;
        else if (data == NULL) failed = 1;
        else {
            PyList_SET_ITEM(connections, count, Py_NewRef(connection));
            PyList_SET_ITEM(links, count, Py_NewRef(link));
            PyList_SET_ITEM(datas, count++, data);
        }
    }
    Py_XDECREF(empty);
    if (!failed && cut(connections, count) == 0 && cut(links, count) == 0 && cut(datas, count) == 0)
        return Py_BuildValue("NNNN", connections, links, datas, others);
    Py_XDECREF(connections);
    Py_XDECREF(links);
    Py_XDECREF(datas);
    Py_XDECREF(others);
    return NULL;
}

PyDoc_STRVAR(committed_doc,
"committed(pending) -> None\n\n"
"So many publications of each connection are committed: they are acknowledged, and count as received.");

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

/* The first of tokens that are numbers counting up, as a store gives them; 0: they are something else. */
static int counts_up(PyObject *tokens, unsigned long long *first)
{
    if (!PyRange_Check(tokens)) return 0;
    PyObject *start = PyObject_GetAttr(tokens, s_start), *step = start ? PyObject_GetAttr(tokens, s_step) : NULL;
    int found = step != NULL && PyLong_AsLong(step) == 1;
    if (found) *first = PyLong_AsUnsignedLongLong(start);
    found = found && *first <= ULLONG_MAX - (unsigned long long)PySequence_Size(tokens);
    Py_XDECREF(start);
    Py_XDECREF(step);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return found;
}

/* What the rows of one column were stored under: those of most sessions follow one another in it. */
typedef struct {
    PyObject *puts, *tokens; /* borrowed; a reference is held */
    Py_ssize_t count;
    int is_run;
    unsigned long long begin; /* of a run */
} stored_rows;

static int look_at_tokens(stored_rows *rows, PyObject *puts)
{
    if (rows->puts == puts) return 0;
    Py_XSETREF(rows->tokens, PyObject_GetAttr(puts, s_tokens));
    rows->puts = puts;
    rows->count = rows->tokens != NULL ? PySequence_Size(rows->tokens) : -1;
    rows->is_run = rows->count > 0 && counts_up(rows->tokens, &rows->begin);
    return rows->count < 0 || PyErr_Occurred() ? -1 : 0;
}

/* The token of a row: a new reference. */
static PyObject *token_of(const stored_rows *rows, Py_ssize_t row)
{
    if (row < 0 || row >= rows->count) return PyErr_Format(PyExc_IndexError, "row %zd has no token", row);
    return rows->is_run ? PyLong_FromUnsignedLongLong(rows->begin + (unsigned long long)row) : PySequence_GetItem(rows->tokens, row);
}

/* The session of an entry of rows that are records, with their identifiers and the first of them: 1; 0: they are left to the caller. */
static int are_records(PyObject *entry, PyObject **session, PyObject **ids, Py_ssize_t *first)
{
    if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 5 || !is_a(PyTuple_GET_ITEM(entry, 0), A_SESSION) ||
        !PyList_CheckExact(PyTuple_GET_ITEM(entry, 3))) {
        PyErr_SetString(PyExc_TypeError, "staged are sessions with puts, the first row, packet identifiers and a run");
        return -1;
    }
    *session = PyTuple_GET_ITEM(entry, 0);
    *ids = PyTuple_GET_ITEM(entry, 3);
    PyObject *ended = field(*session, ENDED);
    *first = as_long(PyTuple_GET_ITEM(entry, 2));
    if (ended == NULL || (*first == -1 && PyErr_Occurred())) return -1;
    return PyTuple_GET_ITEM(entry, 4) == Py_None && ended == Py_False;
}

static int keep_tokens_of(PyObject *session, PyObject *ids, Py_ssize_t first, const stored_rows *rows)
{
    PyObject *into = dict_field(session, TOKENS);
    int failed = into == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(ids); i++) {
        PyObject *token = token_of(rows, first + i);
        failed = token == NULL || PyDict_SetItem(into, PyList_GET_ITEM(ids, i), token) < 0;
        Py_XDECREF(token);
    }
    return failed ? -1 : 0;
}

PyDoc_STRVAR(keep_tokens_doc,
"keep_tokens(staged) -> (count, others)\n\n"
"Note with their sessions under which tokens records of QoS 2 are stored now. How many publications were staged, and which\n"
"of the entries are not such records: runs, and what sessions have staged that have ended since.");

static PyObject *keep_tokens(PyObject *Py_UNUSED(self), PyObject *staged)
{
    if (!PyList_CheckExact(staged)) {
        PyErr_SetString(PyExc_TypeError, "keep_tokens(list)");
        return NULL;
    }
    stored_rows rows = {NULL, NULL, 0, 0, 0};
    PyObject *others = PyList_New(0), *session, *ids;
    Py_ssize_t count = 0, first;
    int failed = others == NULL;
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(staged); at++) {
        PyObject *entry = Py_NewRef(PyList_GET_ITEM(staged, at)); /* tokens may be anything */
        int done = are_records(entry, &session, &ids, &first);
        if (done == 1) failed = look_at_tokens(&rows, PyTuple_GET_ITEM(entry, 1)) < 0 || keep_tokens_of(session, ids, first, &rows) < 0;
        else failed = done < 0 || PyList_Append(others, entry) < 0;
        if (!failed) count += PyList_GET_SIZE(ids);
        Py_DECREF(entry);
    }
    Py_XDECREF(rows.tokens);
    if (!failed) return Py_BuildValue("nN", count, others);
    Py_XDECREF(others);
    return NULL;
}
