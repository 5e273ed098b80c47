/*
 * The fast lane of rounds: one small PUBLISH from each of many connections. fast.py calls it, and does the same in Python
 * (round_in_python), with which the tests compare it.
 *
 * take() reads frames of QoS 1 with neither DUP nor RETAIN in place, one to a chunk, as long as the topic has a route
 * that leads straight to one address. Whatever is not exactly that is returned, untouched, for the plain lane. Nothing
 * is read beyond a chunk: every length is checked against its end before it is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { QOS_1 = 0x32, SHORTEST = 6, CACHE = QOS_1 & 7 };

/* -- objects of classes with slots, read in place -- */

static long path_direct, online, version_5; /* FastPath.DIRECT, ONLINE and V5, from configure() */

enum { A_CONNECTION, A_READER, A_ROUTE, CLASSES };
static PyTypeObject *classes_of[CLASSES];

enum { STATE, GENERATION, READER, CACHES, VERSION, PENDING, LAST_READ, SESSION, LIMITS, HELD, MAX_PACKET, FAST_PATH, VERSION_OF_ROUTE, CHANGES, ADDRESS,
       HEAD, TAILS, FIELDS };
static const struct { int owner; const char *name; } fields[FIELDS] = {
    {A_CONNECTION, "state"}, {A_CONNECTION, "generation"}, {A_CONNECTION, "reader"}, {A_CONNECTION, "caches"},
    {A_CONNECTION, "version"}, {A_CONNECTION, "inbound_pending"}, {A_CONNECTION, "last_read"}, {A_CONNECTION, "session"},
    {A_CONNECTION, "limits"}, {A_READER, "held"}, {A_READER, "max_packet"}, {A_ROUTE, "fast_path"}, {A_ROUTE, "version"},
    {A_ROUTE, "changes"}, {A_ROUTE, "address"}, {A_ROUTE, "head"}, {A_ROUTE, "tails"},
};
static Py_ssize_t offsets[FIELDS];
static PyObject *s_inbound, *s_receive_maximum;

static PyObject **place(PyObject *object, int which) { return (PyObject **)((char *)object + offsets[which]); }

/* A borrowed reference; NULL, with an error, where there is nothing. */
static PyObject *field(PyObject *object, int which)
{
    PyObject *value = *place(object, which);
    if (value == NULL) PyErr_Format(PyExc_AttributeError, "%s has no value", fields[which].name);
    return value;
}

/* A field that is a number; -1 with an error set, as PyLong_AsLong. */
static long number(PyObject *object, int which)
{
    PyObject *value = field(object, which);
    return value == NULL ? -1 : PyLong_AsLong(value);
}

static int is_a(PyObject *object, int class) { return Py_IS_TYPE(object, classes_of[class]); }

/* -- packets -- */

typedef struct {
    const unsigned char *data;
    Py_ssize_t length, topic, mark, body; /* where topic, packet identifier and what is behind it begin */
} frame;

/* Whether a chunk is one frame as it is wanted, as far as that can be told without its connection. */
static int read_frame(PyObject *chunk, frame *found)
{
    if (!PyBytes_CheckExact(chunk)) return 0;
    const unsigned char *data = found->data = (const unsigned char *)PyBytes_AS_STRING(chunk);
    Py_ssize_t length = found->length = PyBytes_GET_SIZE(chunk), at = 2;
    if (length < SHORTEST || data[0] != QOS_1) return 0;
    Py_ssize_t remaining = data[1];
    if (remaining > 127) {
        remaining = (remaining & 127) | (Py_ssize_t)data[2] << 7;
        at = 3;
        if (remaining <= 127 || remaining >= 16384) return 0; /* more bytes than it needs, or a third one */
    }
    if (remaining != length - at) return 0;
    found->topic = at + 2;
    found->mark = found->topic + ((Py_ssize_t)data[at] << 8 | data[at + 1]);
    found->body = found->mark + 2;
    return found->body <= length;
}

/* Whether a 5.0 client has sent no properties and has room for one more. -1: an error is set. */
static int has_room(PyObject *connection, const frame *one)
{
    if (one->body == one->length || one->data[one->body] != 0) return 0;
    PyObject *session = field(connection, SESSION), *limits = field(connection, LIMITS);
    if (session == NULL || limits == NULL) return -1;
    PyObject *inbound = PyObject_GetAttr(session, s_inbound);
    Py_ssize_t kept = inbound == NULL ? -1 : PyObject_Size(inbound);
    Py_XDECREF(inbound);
    if (kept < 0) return -1;
    PyObject *most = PyObject_GetAttr(limits, s_receive_maximum);
    long room = most == NULL ? -1 : PyLong_AsLong(most), pending = number(connection, PENDING);
    Py_XDECREF(most);
    return PyErr_Occurred() ? -1 : pending + kept < room;
}

/* Whether the connection can have sent this just now. -1: an error is set. */
static int is_ready(PyObject *connection, const frame *one, long generation)
{
    long state = number(connection, STATE), own = number(connection, GENERATION);
    PyObject *reader = field(connection, READER);
    if (reader == NULL || PyErr_Occurred()) return -1;
    if (state != online || own != generation || !is_a(reader, A_READER)) return 0;
    PyObject *held = field(reader, HELD);
    long longest = number(reader, MAX_PACKET);
    if (held == NULL || PyErr_Occurred()) return -1;
    return held == Py_None && one->length <= longest;
}

/* The direct route of the frame's topic, as a borrowed reference. NULL: there is none, or an error is set. */
static PyObject *route_of(PyObject *connection, const frame *one)
{
    PyObject *caches = field(connection, CACHES);
    if (caches == NULL) return NULL;
    if (!PyTuple_CheckExact(caches) || PyTuple_GET_SIZE(caches) != 8 || !PyDict_Check(PyTuple_GET_ITEM(caches, CACHE))) {
        PyErr_SetString(PyExc_TypeError, "a connection's caches are 8 dicts");
        return NULL;
    }
    PyObject *topic = PyBytes_FromStringAndSize((const char *)one->data + one->topic, one->mark - one->topic);
    if (topic == NULL) return NULL;
    PyObject *route = PyDict_GetItemWithError(PyTuple_GET_ITEM(caches, CACHE), topic);
    Py_DECREF(topic);
    if (route == NULL || !is_a(route, A_ROUTE)) return NULL;
    PyObject *changes = field(route, CHANGES);
    long path = number(route, FAST_PATH), version = number(route, VERSION_OF_ROUTE);
    if (changes == NULL || PyErr_Occurred()) return NULL;
    if (!PyList_CheckExact(changes) || PyList_GET_SIZE(changes) != 1) {
        PyErr_SetString(PyExc_TypeError, "a route's changes are a list of one");
        return NULL;
    }
    long now = PyLong_AsLong(PyList_GET_ITEM(changes, 0));
    return PyErr_Occurred() || path != path_direct || version != now ? NULL : route;
}

/* -- columns -- */

typedef struct {
    PyObject *address, *heads, *bodies, *owners; /* references are held */
} columns;

static void close_columns(columns *open)
{
    Py_CLEAR(open->address);
    Py_CLEAR(open->heads);
    Py_CLEAR(open->bodies);
    Py_CLEAR(open->owners);
}

/* The columns of a route's address, from the caller unless they are those of the last. */
static int open_columns(columns *open, PyObject *opened, PyObject *route)
{
    PyObject *address = field(route, ADDRESS);
    if (address == NULL) return -1;
    if (address == open->address) return 0;
    close_columns(open);
    PyObject *made = PyObject_CallOneArg(opened, route);
    if (made == NULL) return -1;
    int failed = !PyTuple_CheckExact(made) || PyTuple_GET_SIZE(made) != 3 || !PyList_CheckExact(PyTuple_GET_ITEM(made, 0)) ||
                 !PyList_CheckExact(PyTuple_GET_ITEM(made, 1)) || !PySet_CheckExact(PyTuple_GET_ITEM(made, 2));
    if (failed) {
        PyErr_SetString(PyExc_TypeError, "columns are (heads, bodies, owners)");
    } else {
        open->address = Py_NewRef(address);
        open->heads = Py_NewRef(PyTuple_GET_ITEM(made, 0));
        open->bodies = Py_NewRef(PyTuple_GET_ITEM(made, 1));
        open->owners = Py_NewRef(PyTuple_GET_ITEM(made, 2));
    }
    Py_DECREF(made);
    return failed ? -1 : 0;
}

/* What stands before the payload, with the packet identifier: a new reference. */
static PyObject *tail_of(PyObject *route, unsigned packet_id)
{
    PyObject *tails = field(route, TAILS), *key = tails == NULL ? NULL : PyLong_FromLong((long)packet_id);
    if (key == NULL) return NULL;
    PyObject *found = PyDict_Check(tails) ? PyDict_GetItemWithError(tails, key) : NULL;
    if (found != NULL) Py_INCREF(found);
    else if (!PyErr_Occurred()) found = PyObject_GetItem(tails, key); /* __missing__ makes it */
    Py_DECREF(key);
    if (found != NULL && !PyBytes_CheckExact(found)) {
        PyErr_SetString(PyExc_TypeError, "a tail is bytes");
        Py_CLEAR(found);
    }
    return found;
}

static int append_row(columns *to, PyObject *route, const frame *one, unsigned packet_id)
{
    PyObject *head = field(route, HEAD), *tail = head == NULL ? NULL : tail_of(route, packet_id);
    if (tail == NULL) return -1;
    size_t front = (size_t)PyBytes_GET_SIZE(tail), length = (size_t)(one->length - one->body);
    PyObject *body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(front + length));
    if (body != NULL) {
        memcpy(PyBytes_AS_STRING(body), PyBytes_AS_STRING(tail), front);
        memcpy(PyBytes_AS_STRING(body) + front, one->data + one->body, length);
    }
    Py_DECREF(tail);
    int failed = body == NULL || PyList_Append(to->heads, head) < 0 || PyList_Append(to->bodies, body) < 0;
    Py_XDECREF(body);
    return failed ? -1 : 0;
}

/* -- what the connection is told, and what is kept of it until then -- */

static int reply(PyObject *replies, PyObject *connection, PyObject *answer)
{
    PyObject *known = PyDict_GetItemWithError(replies, connection);
    if (known != NULL && PyList_CheckExact(known)) return PyList_Append(known, answer);
    if (PyErr_Occurred()) return -1;
    PyObject *made = PyList_New(1);
    if (made == NULL) return -1;
    PyList_SET_ITEM(made, 0, Py_NewRef(answer));
    int failed = PyDict_SetItem(replies, connection, made);
    Py_DECREF(made);
    return failed;
}

static int count_pending(PyObject *pending, PyObject *connection)
{
    PyObject *known = PyDict_GetItemWithError(pending, connection);
    long before = known == NULL ? 0 : PyLong_AsLong(known), own = number(connection, PENDING);
    if (PyErr_Occurred()) return -1;
    PyObject *one_more = PyLong_FromLong(before + 1), *all = PyLong_FromLong(own + 1);
    int failed = one_more == NULL || all == NULL || PyDict_SetItem(pending, connection, one_more) < 0;
    Py_XDECREF(one_more);
    if (failed) {
        Py_XDECREF(all);
        return -1;
    }
    Py_XSETREF(*place(connection, PENDING), all);
    return 0;
}

typedef struct {
    PyObject *opened, *replies, *pending, *pubacks, *now;
    long generation, longest;
    columns open;
} taking;

/* 1: taken; 0: it is not an ordinary PUBLISH; -1: an error is set. */
static int take_one(taking *with, PyObject *connection, PyObject *chunk, Py_ssize_t *size)
{
    frame one;
    if (!is_a(connection, A_CONNECTION) || !read_frame(chunk, &one)) return 0;
    int fits = is_ready(connection, &one, with->generation);
    if (fits != 1) return fits;
    PyObject *route = route_of(connection, &one);
    if (route == NULL) return PyErr_Occurred() ? -1 : 0;
    long version = number(connection, VERSION);
    if (version == -1 && PyErr_Occurred()) return -1;
    if (version == version_5) {
        if ((fits = has_room(connection, &one)) != 1) return fits;
        one.body++;
    }
    unsigned packet_id = (unsigned)one.data[one.mark] << 8 | one.data[one.mark + 1];
    if (packet_id == 0 || one.length - one.body > with->longest) return 0;
    Py_INCREF(route); /* the caller is asked for columns and may forget the route */
    PyObject *answer = PyList_GET_ITEM(with->pubacks, packet_id);
    int failed = open_columns(&with->open, with->opened, route) < 0 || append_row(&with->open, route, &one, packet_id) < 0 ||
                 PySet_Add(with->open.owners, connection) < 0 || reply(with->replies, connection, answer) < 0 ||
                 count_pending(with->pending, connection) < 0;
    Py_DECREF(route);
    if (failed) return -1;
    Py_XSETREF(*place(connection, LAST_READ), Py_NewRef(with->now));
    *size += one.length;
    return 1;
}

static int wrong(void)
{
    PyErr_SetString(PyExc_TypeError, "take(list of (connection, bytes), callable, dict, dict, list of 65536, float, int, int)");
    return -1;
}

static int begin(taking *with, PyObject *const *args, Py_ssize_t nargs)
{
    if (classes_of[A_ROUTE] == NULL || nargs != 8 || !PyList_CheckExact(args[0]) || !PyDict_CheckExact(args[2]) ||
        !PyDict_CheckExact(args[3]) || !PyList_CheckExact(args[4]) || PyList_GET_SIZE(args[4]) != 65536)
        return wrong();
    *with = (taking){args[1], args[2], args[3], args[4], args[5], PyLong_AsLong(args[6]), PyLong_AsLong(args[7]), {0}};
    return PyErr_Occurred() ? -1 : 0;
}

PyDoc_STRVAR(take_doc,
"take(arrived, opened, replies, pending, pubacks, now, generation, longest) -> (others, rows, size)\n\n"
"Take the ordinary publications among what connections have sent; opened(route) returns the columns of its address,\n"
"(heads, bodies, owners). Returns the others, and of those taken how many there were and their bytes.");

static PyObject *take(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    taking with;
    Py_ssize_t rows = 0, size = 0;
    if (begin(&with, args, nargs) < 0) return NULL;
    PyObject *others = PyList_New(0);
    int done = others == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; done >= 0 && i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *pair = Py_NewRef(PyList_GET_ITEM(args[0], i));
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) done = wrong();
        else done = take_one(&with, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), &size);
        if (done == 0) done = PyList_Append(others, pair);
        else if (done == 1) rows++;
        Py_DECREF(pair);
    }
    close_columns(&with.open);
    if (done < 0) {
        Py_XDECREF(others);
        return NULL;
    }
    return Py_BuildValue("Nnn", others, rows, size);
}

PyDoc_STRVAR(configure_doc,
"configure(connection, reader, route, direct, online, version_5) -> None\n\n"
"The classes whose slots are read from now on, and the numbers of what is taken: the fast path, state and version.");

static PyObject *configure(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *given[CLASSES];
    long numbers[3];
    if (!PyArg_ParseTuple(args, "O!O!O!lll", &PyType_Type, &given[0], &PyType_Type, &given[1], &PyType_Type, &given[2],
                          &numbers[0], &numbers[1], &numbers[2]))
        return NULL;
    Py_ssize_t found[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        PyObject *descriptor = PyObject_GetAttrString(given[fields[i].owner], fields[i].name);
        if (descriptor == NULL) return NULL;
        PyMemberDef *member = Py_IS_TYPE(descriptor, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)descriptor)->d_member : NULL;
        found[i] = member != NULL && member->type == T_OBJECT_EX ? member->offset : 0;
        Py_DECREF(descriptor); /* the class holds it */
        if (found[i] == 0) return PyErr_Format(PyExc_TypeError, "%s is not a slot of its class", fields[i].name);
    }
    memcpy(offsets, found, sizeof found);
    for (int i = 0; i < CLASSES; i++) Py_XSETREF(classes_of[i], (PyTypeObject *)Py_NewRef(given[i]));
    path_direct = numbers[0];
    online = numbers[1];
    version_5 = numbers[2];
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS, configure_doc},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.broker.publish._rounds", "The fast lane of rounds; fast.py calls it.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rounds(void)
{
    if (check_sources() < 0) return NULL;
    if ((s_inbound = PyUnicode_InternFromString("inbound")) == NULL ||
        (s_receive_maximum = PyUnicode_InternFromString("receive_maximum")) == NULL)
        return NULL;
    return PyModule_Create(&module);
}
