/*
 * The fast lane: from the bytes that several connections have sent to the columns of a unit of work. fast.py calls it, and
 * does the same in Python, function for function; the tests compare both with the plain lane (plain.py).
 *
 * take() goes through what has arrived, connection by connection, and takes packets as long as they are ordinary: PUBLISH
 * on a route with a fast path, and PUBREL of such. At anything else, an incomplete packet included, it
 * stops for that connection and says where. What it needs made (a route that is not cached, columns that are not open) it
 * asks of the lane, a Python object.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_fast_objects.h"
#include "_fast_packets.h"
#include "_fast_columns.h"
#include "_fast_properties.h"
#include "_fast_forms.h"
#include "_fast_shared.h"
#include "_fast_routes.h"
#include "_fast_keeping.h"
#include "_fast_publish.h"
#include "_fast_relay.h"
#include "_fast_qos2.h"
#include "_fast_release.h"
#include "_fast_answers.h"
#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

static PyObject *s_joined, *s_renew, *s_settle, *s_released, *s_failed, *s_unrouted;

/* Answers to what this client was sent. */
static int take_answers(taking *of, PyObject *chunk)
{
    PyObject *at = PyLong_FromSsize_t(of->at), *end = NULL;
    if (at != NULL) end = PyObject_CallMethodObjArgs(of->turn->lane, s_settle, of->connection, chunk, at, NULL);
    Py_XDECREF(at);
    Py_ssize_t stop = end == NULL ? -1 : PyLong_AsSsize_t(end);
    Py_XDECREF(end);
    if (stop < of->at || stop > of->end) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "answers end where none are");
        return -1;
    }
    int any = stop > of->at;
    of->at = stop;
    return any;
}

/* Take packets until one is not ordinary. */
static int take_packets(taking *of, PyObject *chunk)
{
    int more = 1;
    while (more == 1 && of->at + 4 <= of->end) { /* no packet that is taken is shorter */
        unsigned first = of->data[of->at];
        if ((first & 0xF0) == PUBLISH) more = first & QOS_2 ? take_staged(of, first) : take_publications(of, first);
        else if (first == PUBREL) more = take_released(of, chunk);
        else more = first == PUBACK || first == PUBREC || first == PUBCOMP ? take_answers(of, chunk) : 0;
    }
    return more < 0 ? -1 : 0;
}

/* Add to the count that a dict has for a key. */
static int add_count(PyObject *counts, PyObject *key, Py_ssize_t more)
{
    Py_ssize_t known = PyDict_GET_SIZE(counts);
    PyObject *count = PyLong_FromSsize_t(more), *before = count != NULL ? PyDict_SetDefault(counts, key, count) : NULL;
    Py_XDECREF(count);
    if (before == NULL || PyDict_GET_SIZE(counts) > known) return before == NULL ? -1 : 0;
    long sum = as_long(before);
    count = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(sum + more);
    int failed = count == NULL || PyDict_SetItem(counts, key, count) < 0;
    Py_XDECREF(count);
    return failed ? -1 : 0;
}

/* Have what was taken of a connection answered, and counted as its. */
static int account(taking *of)
{
    Py_ssize_t others = of->unanswered + of->received; /* those of QoS 1 follow with their commit */
    if (hand_in_answers(of) < 0) return -1;
    if (keep_all(of) < 0) return -1;
    if (of->acknowledged &&
        (add_count(of->turn->pending, of->connection, of->acknowledged) < 0 || add_to_number(of->connection, PENDING, of->acknowledged) < 0))
        return -1;
    if (of->completed && of->is_5) {
        PyObject *count = PyLong_FromSsize_t(of->completed);
        PyObject *done = count == NULL ? NULL : PyObject_CallMethodObjArgs(of->turn->lane, s_released, of->connection, count, NULL);
        Py_XDECREF(count);
        if (done == NULL) return -1;
        Py_DECREF(done);
    }
    if (others && add_to_number(of->session, RECEIVED, others) < 0) return -1;
    if (others + of->acknowledged && add_to_number(of->connection, PUBLISHED, others + of->acknowledged) < 0) return -1;
    of->turn->unanswered += of->unanswered;
    of->turn->acknowledged += of->acknowledged;
    of->turn->received += of->received;
    of->turn->completed += of->completed;
    of->turn->unrouted += of->unrouted;
    return 0;
}

/* What is taken in of a connection that may send; *at: from where on, and where it ended. */
static int take_of(turn *turn, PyObject *connection, PyObject *chunk, Py_ssize_t *at)
{
    PyObject *session = field_of(connection, SESSION, A_SESSION), *limits = field_of(connection, LIMITS, A_LIMITS);
    PyObject *reader = field_of(connection, READER, A_READER), *inbound = session != NULL ? dict_field(session, INBOUND) : NULL;
    if (inbound == NULL || limits == NULL || reader == NULL) return -1;
    long longest = number(limits, MAX_PAYLOAD), version = number(connection, VERSION);
    taking of = {.turn = turn, .connection = connection, .session = Py_NewRef(session), .inbound = Py_NewRef(inbound)};
    of.data = (const unsigned char *)PyBytes_AS_STRING(chunk);
    of.at = *at;
    of.end = PyBytes_GET_SIZE(chunk);
    of.max_packet = number(reader, MAX_PACKET);
    of.most_users = number(limits, MAX_USERS);
    of.longest = longest != 0 ? longest : number(limits, LONGEST_PACKET);
    of.is_5 = version == version_5;
    of.room = of.is_5 ? number(limits, RECEIVE_MAXIMUM) : number(connection, UNRELEASED);
    of.in_flight = of.is_5 ? number(connection, UNCOMPLETED) : 0;
    int failed = PyErr_Occurred() || take_packets(&of, chunk) < 0;
    if (!failed) failed = account(&of) < 0;
    Py_CLEAR(of.answers);
    Py_CLEAR(of.kept_route);
    Py_CLEAR(of.kept);
    Py_DECREF(session);
    Py_DECREF(inbound);
    *at = of.at;
    return failed ? -1 : 0;
}

/* A defect that was met with a connection costs this connection, not the others; -1: an error is set. */
static int fail(const turn *turn, PyObject *connection)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL) PyException_SetTraceback(error, trace);
    PyObject *done = PyObject_CallMethodObjArgs(turn->lane, s_failed, connection, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Whether packets of the connection may be taken here; -1: an error is set. */
static int may_take(const turn *turn, PyObject *connection)
{
    PyObject *traced = field(connection, TRACED);
    long state = number(connection, STATE), generation = number(connection, GENERATION);
    if (traced == NULL || PyErr_Occurred()) return -1;
    if (state != online_state || traced != Py_False) return 0;
    if (generation == turn->generation) return 1;
    PyObject *said = PyObject_CallMethodOneArg(turn->lane, s_renew, connection);
    int yes = said == NULL ? -1 : PyObject_IsTrue(said);
    Py_XDECREF(said);
    return yes;
}

/* What was held of a connection, and this chunk; NULL with no error set: there is nothing to be taken yet. */
static PyObject *begin_chunk(turn *turn, PyObject *connection, PyObject *chunk)
{
    PyObject *reader = field_of(connection, READER, A_READER), *held = reader != NULL ? field(reader, HELD) : NULL;
    long state = number(connection, STATE);
    if (held == NULL || PyErr_Occurred()) return NULL;
    turn->size += PyBytes_GET_SIZE(chunk);
    Py_XSETREF(*place(connection, LAST_READ), Py_NewRef(turn->now));
    if (held == Py_None || state != online_state) return Py_NewRef(chunk);
    PyObject *whole = PyObject_CallMethodOneArg(reader, s_joined, chunk);
    if (whole != NULL && !PyBytes_CheckExact(whole)) {
        PyErr_SetString(PyExc_TypeError, "what is joined is bytes");
        Py_CLEAR(whole);
    }
    if (whole != NULL && PyBytes_GET_SIZE(whole) == 0) Py_CLEAR(whole);
    return whole;
}

static int wrong(void)
{
    PyErr_SetString(PyExc_TypeError, "take(lane, list of (connection, bytes) or (connection, bytes, offset), dict, dict, int, float)");
    return -1;
}

/* What has arrived of one connection. 1: it subscribes or unsubscribes next; -1: an error is set. */
static int take_connection(turn *turn, PyObject *entry)
{
    Py_ssize_t parts = PyTuple_CheckExact(entry) ? PyTuple_GET_SIZE(entry) : 0, at = 0;
    if (parts < 2 || parts > 3 || !is_a(PyTuple_GET_ITEM(entry, 0), A_CONNECTION) || !PyBytes_CheckExact(PyTuple_GET_ITEM(entry, 1)))
        return wrong();
    PyObject *connection = PyTuple_GET_ITEM(entry, 0), *chunk = PyTuple_GET_ITEM(entry, 1);
    long state = number(connection, STATE);
    if (parts == 3) at = PyLong_AsSsize_t(PyTuple_GET_ITEM(entry, 2));
    if (PyErr_Occurred()) return -1;
    if (state == closed_state) return 0;
    if (at < 0) return wrong();
    PyObject *data = parts == 3 ? Py_NewRef(chunk) : begin_chunk(turn, connection, chunk);
    if (data == NULL) return PyErr_Occurred() ? -1 : 0;
    int fits = may_take(turn, connection);
    if (fits < 0 || (fits == 1 && take_of(turn, connection, data, &at) < 0)) {
        Py_DECREF(data);
        return fail(turn, connection);
    }
    int failed = 0, asks = 0;
    if (at < PyBytes_GET_SIZE(data)) {
        PyObject *left = Py_BuildValue("OOn", connection, data, at);
        failed = append(turn->rest, left) < 0;
        unsigned char first = (unsigned char)PyBytes_AS_STRING(data)[at];
        asks = parts == 2 && state == online_state && (first == SUBSCRIBE || first == UNSUBSCRIBE);
    }
    Py_DECREF(data);
    return failed ? -1 : asks;
}

/* Have publications counted that nobody gets. */
static int say_unrouted(const turn *turn)
{
    PyObject *count = PyLong_FromSsize_t(turn->unrouted);
    PyObject *said = count != NULL ? PyObject_CallMethodOneArg(turn->lane, s_unrouted, count) : NULL;
    Py_XDECREF(count);
    Py_XDECREF(said);
    return said != NULL ? 0 : -1;
}

PyDoc_STRVAR(take_doc,
"take(lane, arrived, replies, pending, generation, now) -> (rest, looked, size, unanswered, acknowledged, received, completed)\n\n"
"Take the ordinary packets at the beginning of what has arrived into the open batch, whose answers and unanswered\n"
"publications are given, as far as the first that subscribes or unsubscribes; see fast.py.");

static PyObject *take(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (classes_of[A_ROUTE] == NULL || nargs != 6 || !PyList_CheckExact(args[1]) || !PyDict_CheckExact(args[2]) ||
        !PyDict_CheckExact(args[3]) || !PyLong_Check(args[4]) || !PyFloat_Check(args[5])) {
        wrong();
        return NULL;
    }
    turn now = {.lane = args[0], .replies = args[2], .pending = args[3], .now = args[5], .generation = PyLong_AsLong(args[4])};
    if (PyErr_Occurred() || (now.rest = PyList_New(0)) == NULL) return NULL;
    int taken = 0;
    Py_ssize_t looked = 0;
    while (taken == 0 && looked < PyList_GET_SIZE(args[1])) {
        PyObject *entry = Py_NewRef(PyList_GET_ITEM(args[1], looked++));
        taken = take_connection(&now, entry);
        Py_DECREF(entry);
    }
    int failed = taken < 0;
    if (!failed) failed = forward(&now) < 0;
    if (!failed && now.unrouted > 0) failed = say_unrouted(&now) < 0;
    if (leave_keeping(&now) < 0) failed = 1;
    Py_CLEAR(now.staging.said);
    Py_CLEAR(now.taken.said);
    Py_CLEAR(now.sharing.said);
    Py_CLEAR(now.time);
    Py_CLEAR(now.sent);
    Py_CLEAR(now.linked);
    forget_tail(&now.tail);
    if (failed) {
        Py_DECREF(now.rest);
        return NULL;
    }
    return Py_BuildValue("Nnnnnnn", now.rest, looked, now.size, now.unanswered, now.acknowledged, now.received, now.completed);
}

/* -- whole columns, for columns.py -- */

PyDoc_STRVAR(length_doc, "length(column) -> int\n\nThe bytes of a column's values together.");

static PyObject *length(PyObject *Py_UNUSED(self), PyObject *column)
{
    Py_ssize_t sum = 0;
    if (!PyList_CheckExact(column)) {
        PyErr_SetString(PyExc_TypeError, "a column is a list");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(column); i++) {
        PyObject *value = PyList_GET_ITEM(column, i);
        if (!PyBytes_CheckExact(value)) {
            PyErr_SetString(PyExc_TypeError, "a column's values are bytes");
            return NULL;
        }
        sum += PyBytes_GET_SIZE(value);
    }
    return PyLong_FromSsize_t(sum);
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS, configure_doc},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {"length", length, METH_O, length_doc},
    {"ordinary", ordinary, METH_O, ordinary_doc},
    {"committed", committed, METH_O, committed_doc},
    {"keep_tokens", keep_tokens, METH_O, keep_tokens_doc},
    {"join", (PyCFunction)(void (*)(void))join, METH_FASTCALL, join_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.broker.publish._fast", "The fast lane; fast.py calls it.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__fast(void)
{
    static const struct { PyObject **where; const char *name; } names[] = {
        {&s_close, "close"}, {&s_width, "width"}, {&s_open, "open"}, {&s_route, "route"}, {&s_variant, "variant"}, {&s_aliased, "aliased"}, {&s_form, "form"}, {&s_head, "head"}, {&s_time, "time"}, {&s_escaped, "escaped"}, {&s_write, "write"}, {&s_unrouted, "unrouted"}, {&s_relay, "relay"},
        {&s_admits, "admits"}, {&s_records, "records"}, {&s_staged_head, "staged_head"}, {&s_new_run, "new_run"}, {&s_stage, "stage"},
        {&s_keeps_until, "keeps_until"}, {&s_may_move, "may_move"}, {&s_move, "move"}, {&s_taken_records, "taken_records"}, {&s_release, "release"}, {&s_ids, "ids"},
        {&s_bodies, "bodies"}, {&s_size, "size"}, {&s_longest, "longest"}, {&s_joined, "joined"}, {&s_renew, "renew"},
        {&s_settle, "settle"}, {&s_keep, "keep"}, {&s_released, "released"}, {&s_failed, "failed"}, {&s_asked, "asked"}, {&s_linked, "linked"}, {&s_keeping, "keeping"}, {&s_have_kept, "have_kept"}, {&s_start, "start"}, {&s_step, "step"}, {&s_join, "join"}, {&s_tokens, "tokens"}, {&s_forward, "forward"}, {&s_sharing, "sharing"},
    };
    if (check_sources() < 0) return NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].where = PyUnicode_InternFromString(names[i].name)) == NULL) return NULL;
    if ((escaped_names = PyDict_New()) == NULL || (no_user = PyUnicode_New(0, 0)) == NULL) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && add_topic_cache_type(made) < 0) Py_CLEAR(made);
    return made;
}
