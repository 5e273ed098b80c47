/*
 * What the fast lane reads and writes of connections, readers, sessions, limits, routes and columns: objects of classes
 * with slots, read in place. configure() finds the slots.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { A_CONNECTION, A_READER, A_SESSION, A_LIMITS, A_ROUTE, A_COLUMNS, A_FORM, A_BODY, A_JSON_CELL, A_TIME_CELL, A_PACKET_ID_CELL, A_USER_CELL, A_LATEST, A_NODE, A_REPLACE, CLASSES };
static PyTypeObject *classes_of[CLASSES];

enum {
    STATE, GENERATION, READER, CACHES, VERSION, PENDING, UNCOMPLETED, PUBLISHED, LAST_READ, SESSION, LIMITS, TRACED, UNRELEASED,
    LINK, OUT, CONNACK_SENT, PUBLISHER_OF, DECISIONS,
    HELD, MAX_PACKET,
    INBOUND, TOKENS, RECEIVED, ENDED,
    RECEIVE_MAXIMUM, MAX_PAYLOAD, LONGEST_PACKET, MAX_USERS,
    FAST_PATH, VERSION_OF_ROUTE, CHANGES, COLUMNS, HEAD, TAILS, FORM, LINKED, OTHERWISE, ELSEWHERE, MOST_COPIED, QUEUE, STAGED_HEAD, READS,
    PUBLISHER, TOPIC,
    HEADS, BODIES, OWNERS, RELEASED, QUEUES, DESTINATION,
    BEFORE, LENGTH, FIXED, AFTER, USR, CARRIES, TAKEN, LONGEST_EXPIRY, CHECK, CONDITION, FORM_HEAD, AROUND_TIME,
    NAME, BEGIN, END, REQUIRED,
    WIRE_TOPIC, FIRST, CLIENT_ID, STAGED_KEY, WHOSE, QOS, FRONT, RECORD, RECORD_NAME, RECORD_NUMBER, RECORD_SIZE, NODE, KEPT,
    FIELDS
};
static const struct { int owner; const char *name; } fields[FIELDS] = {
    {A_CONNECTION, "state"}, {A_CONNECTION, "generation"}, {A_CONNECTION, "reader"}, {A_CONNECTION, "caches"},
    {A_CONNECTION, "version"}, {A_CONNECTION, "inbound_pending"}, {A_CONNECTION, "uncompleted"}, {A_CONNECTION, "published"},
    {A_CONNECTION, "last_read"}, {A_CONNECTION, "session"}, {A_CONNECTION, "limits"}, {A_CONNECTION, "traced"},
    {A_CONNECTION, "unreleased"}, {A_CONNECTION, "link"}, {A_CONNECTION, "out"}, {A_CONNECTION, "connack_sent"},
    {A_CONNECTION, "publisher"}, {A_CONNECTION, "decisions"},
    {A_READER, "held"}, {A_READER, "max_packet"},
    {A_SESSION, "inbound"}, {A_SESSION, "staged_tokens"}, {A_SESSION, "received"}, {A_SESSION, "ended"},
    {A_LIMITS, "receive_maximum"}, {A_LIMITS, "max_payload"}, {A_LIMITS, "max_packet"},
    {A_LIMITS, "max_user_properties"},
    {A_ROUTE, "fast_path"}, {A_ROUTE, "version"}, {A_ROUTE, "changes"}, {A_ROUTE, "columns"}, {A_ROUTE, "head"},
    {A_ROUTE, "tails"}, {A_ROUTE, "form"}, {A_ROUTE, "linked"}, {A_ROUTE, "otherwise"}, {A_ROUTE, "elsewhere"}, {A_ROUTE, "most"},
    {A_ROUTE, "queue"}, {A_ROUTE, "staged_head"}, {A_ROUTE, "reads"},
    {A_ROUTE, "publisher"}, {A_ROUTE, "topic"},
    {A_COLUMNS, "heads"}, {A_COLUMNS, "bodies"}, {A_COLUMNS, "owners"}, {A_COLUMNS, "released"},
    {A_COLUMNS, "queues"}, {A_COLUMNS, "destination"},
    {A_FORM, "before"}, {A_FORM, "length"}, {A_FORM, "fixed"}, {A_FORM, "after"}, {A_FORM, "usr"}, {A_FORM, "carries"},
    {A_FORM, "taken"}, {A_FORM, "longest_expiry"}, {A_FORM, "check"}, {A_FORM, "condition"}, {A_FORM, "head"},
    {A_FORM, "around_time"},
    {A_USER_CELL, "name"}, {A_USER_CELL, "begin"}, {A_USER_CELL, "end"}, {A_USER_CELL, "required"},
    {A_ROUTE, "wire_topic"}, {A_ROUTE, "first"}, {A_SESSION, "client_id"}, {A_SESSION, "staged_key"},
    {A_LATEST, "client_id"}, {A_LATEST, "qos"}, {A_LATEST, "front"}, {A_LATEST, "record"}, {A_LATEST, "name"}, {A_LATEST, "number"},
    {A_LATEST, "size"}, {A_LATEST, "node"}, {A_NODE, "kept"},
};
static Py_ssize_t offsets[FIELDS];

static long closed_state, online_state, version_5; /* CLOSED, ONLINE and V5 */
static long path_direct, path_staged, path_fan_out, path_formed, path_linked, path_promised, path_unrouted; /* of FastPath */
static Py_ssize_t expiry_at, rfh2_length; /* where in a descriptor Expiry stands; bytes of an MQRFH2 without folders */
static Py_ssize_t least; /* publications in a staged run */
static Py_ssize_t many; /* from so many topics on a client's routes are kept in a TopicCache */

static PyObject **place(PyObject *object, int which) { return (PyObject **)((char *)object + offsets[which]); }

static int is_tuple_of(PyObject *object, Py_ssize_t parts) { return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == parts; }

static int is_a(PyObject *object, int class) { return Py_IS_TYPE(object, classes_of[class]); }

/* A borrowed reference; NULL, with an error, where there is nothing. The object is of the class that has the field. */
static PyObject *field(PyObject *object, int which)
{
    PyObject *value = *place(object, which);
    if (value == NULL) PyErr_Format(PyExc_AttributeError, "%s has no value", fields[which].name);
    return value;
}

/* The same where the value has to be of one of these classes. */
static PyObject *field_of(PyObject *object, int which, int class)
{
    PyObject *value = field(object, which);
    if (value != NULL && !is_a(value, class)) {
        PyErr_Format(PyExc_TypeError, "%s is of another class", fields[which].name);
        return NULL;
    }
    return value;
}

static PyObject *dict_field(PyObject *object, int which)
{
    PyObject *value = field(object, which);
    if (value != NULL && !PyDict_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s is a dict", fields[which].name);
        return NULL;
    }
    return value;
}

/* As PyLong_AsLong; at once for the small numbers that nearly all are. */
static long as_long(PyObject *value)
{
    if (PyLong_Check(value)) {
        PyLongObject *one = (PyLongObject *)value;
#if PY_VERSION_HEX >= 0x030C0000
        if (PyUnstable_Long_IsCompact(one)) return (long)PyUnstable_Long_CompactValue(one);
#else
        Py_ssize_t digits = Py_SIZE(one); /* negative: so is the number */
        if (digits >= -1 && digits <= 1) return (long)digits * (long)one->ob_digit[0];
#endif
    }
    return PyLong_AsLong(value);
}

/* A field that is a number; -1 with an error set, as PyLong_AsLong. */
static inline long number(PyObject *object, int which)
{
    PyObject *value = field(object, which);
    return value == NULL ? -1 : as_long(value);
}

static int add_to_number(PyObject *object, int which, Py_ssize_t more)
{
    long before = number(object, which);
    if (before == -1 && PyErr_Occurred()) return -1;
    PyObject *sum = PyLong_FromSsize_t(before + more);
    if (sum == NULL) return -1;
    Py_XSETREF(*place(object, which), sum);
    return 0;
}

enum { STALE = 1 << 8 };

/* The fast path of a route; 0: it has none; STALE: subscriptions have changed since; -1: an error is set. */
static long fast_path_of(PyObject *route)
{
    if (!is_a(route, A_ROUTE)) {
        PyErr_SetString(PyExc_TypeError, "caches hold routes");
        return -1;
    }
    PyObject *path = field(route, FAST_PATH), *version = field(route, VERSION_OF_ROUTE), *changes = field(route, CHANGES);
    if (path == NULL || version == NULL || changes == NULL) return -1;
    if (!PyLong_Check(path) || !PyLong_CheckExact(version) || !PyList_CheckExact(changes) || PyList_GET_SIZE(changes) != 1) {
        PyErr_SetString(PyExc_TypeError, "fast_path and version are numbers, and a route's changes are a list of one");
        return -1;
    }
    if (version != PyList_GET_ITEM(changes, 0)) {
        int same = PyObject_RichCompareBool(version, PyList_GET_ITEM(changes, 0), Py_EQ);
        if (same != 1) return same == 0 ? STALE : -1;
    }
    return as_long(path);
}

PyDoc_STRVAR(configure_doc,
"configure(classes, numbers) -> None\n\n"
"The classes whose slots are read from now on: connection, reader, session, limits, route, columns, form;\n"
"those of a payload that is looked into, and of cells: JSON field, time of receipt, packet identifier, user property; of the\n"
"record of a topic, of the place of a topic, and of what replaces a record. The numbers\n"
"CLOSED, ONLINE, V5, FastPath.DIRECT, .STAGED, .FAN_OUT, .FORMED, .LINKED, .PROMISED and .UNROUTED, from how many topics on a client's routes are kept in a\n"
"TopicCache, the least publications in a staged run, where in a descriptor Expiry stands, and the length of an MQRFH2 without\n"
"folders.");

static PyObject *configure(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *given[CLASSES];
    long numbers[10];
    Py_ssize_t fewest, run, expiry, length;
    if (!PyArg_ParseTuple(args, "(O!O!O!O!O!O!O!O!O!O!O!O!O!O!O!)(llllllllllnnnn)", &PyType_Type, &given[0], &PyType_Type, &given[1], &PyType_Type,
                          &given[2], &PyType_Type, &given[3], &PyType_Type, &given[4], &PyType_Type, &given[5], &PyType_Type, &given[6],
                          &PyType_Type, &given[7], &PyType_Type, &given[8], &PyType_Type, &given[9], &PyType_Type, &given[10], &PyType_Type, &given[11],
                          &PyType_Type, &given[12], &PyType_Type, &given[13], &PyType_Type, &given[14],
                          &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], &numbers[5], &numbers[6], &numbers[7], &numbers[8], &numbers[9],
                          &fewest, &run, &expiry, &length))
        return NULL;
    Py_ssize_t found[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        PyObject *descriptor = PyObject_GetAttrString(given[fields[i].owner], fields[i].name);
        if (descriptor == NULL) return NULL;
        int is_slot = Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
        PyMemberDef *member = is_slot ? ((PyMemberDescrObject *)descriptor)->d_member : NULL;
        found[i] = member != NULL && member->type == T_OBJECT_EX ? member->offset : 0;
        Py_DECREF(descriptor); /* the class holds it */
        if (found[i] == 0) return PyErr_Format(PyExc_TypeError, "%s is not a slot of its class", fields[i].name);
    }
    memcpy(offsets, found, sizeof found);
    for (int i = 0; i < CLASSES; i++) Py_XSETREF(classes_of[i], (PyTypeObject *)Py_NewRef(given[i]));
    closed_state = numbers[0];
    online_state = numbers[1];
    version_5 = numbers[2];
    path_direct = numbers[3];
    path_staged = numbers[4];
    path_fan_out = numbers[5];
    path_formed = numbers[6];
    path_linked = numbers[7];
    path_promised = numbers[8];
    path_unrouted = numbers[9];
    expiry_at = expiry;
    rfh2_length = length;
    many = fewest;
    least = run;
    Py_RETURN_NONE;
}
