/*
 * Rows: what a message is made of, and the columns it is appended to.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

static PyObject *s_close, *s_width, *s_open;

/* -- columns -- */

typedef struct {
    PyObject *columns, *heads, *bodies; /* references are held; NULL: none are in use */
    PyObject *queues, *owners; /* the same, where each row has a queue of its own */
} open_columns;

static void leave_columns(open_columns *open)
{
    Py_CLEAR(open->columns);
    Py_CLEAR(open->heads);
    Py_CLEAR(open->bodies);
    Py_CLEAR(open->queues);
    Py_CLEAR(open->owners);
}

/* Use some columns, opened if they are not open, for rows of this connection. */
static int use_these(const taking *of, PyObject *columns, open_columns *open)
{
    if (columns == open->columns && *place(columns, HEADS) == open->heads) return 0; /* and not closed meanwhile */
    leave_columns(open);
    Py_INCREF(columns);
    PyObject *heads = field(columns, HEADS);
    if (heads == Py_None) {
        PyObject *opened = PyObject_CallMethodOneArg(of->turn->lane, s_open, columns);
        Py_XDECREF(opened);
        heads = opened != NULL ? field(columns, HEADS) : NULL;
    }
    PyObject *bodies = heads != NULL ? field(columns, BODIES) : NULL, *owners = bodies != NULL ? field(columns, OWNERS) : NULL;
    PyObject *queues = owners != NULL ? field(columns, QUEUES) : NULL;
    if (queues == NULL) {
        Py_DECREF(columns);
        return -1;
    }
    int fits = PyList_CheckExact(heads) && PyList_CheckExact(bodies) && PyList_CheckExact(owners);
    if (!fits || !(queues == Py_None || PyList_CheckExact(queues))) {
        PyErr_SetString(PyExc_TypeError, "columns that are open have three lists, or four");
        Py_DECREF(columns);
        return -1;
    }
    open->columns = columns;
    open->heads = Py_NewRef(heads);
    open->bodies = Py_NewRef(bodies);
    if (queues == Py_None) return PyList_Append(owners, of->connection);
    open->queues = Py_NewRef(queues);
    open->owners = Py_NewRef(owners);
    return 0;
}

/* Use the columns of a route. */
static int use_columns(const taking *of, PyObject *route, open_columns *open)
{
    PyObject *columns = field_of(route, COLUMNS, A_COLUMNS);
    return columns == NULL ? -1 : use_these(of, columns, open);
}

static int append(PyObject *list, PyObject *stolen)
{
    if (stolen == NULL) return -1;
    int failed = PyList_Append(list, stolen);
    Py_DECREF(stolen);
    return failed;
}

/* The head of one more row, whose body is there, of a route with these columns. */
static inline int append_head(const taking *of, PyObject *route, const open_columns *open, PyObject *head)
{
    if (open->queues != NULL) {
        PyObject *queue = field(route, QUEUE);
        if (queue == NULL || PyList_Append(open->queues, queue) < 0 || PyList_Append(open->owners, of->connection) < 0) return -1;
    }
    return PyList_Append(open->heads, head);
}

/* -- tails -- */

static void forget_tail(tail_source *tail)
{
    Py_CLEAR(tail->tails);
    Py_CLEAR(tail->close);
}

static void use_tail(tail_source *tail, const tail_source *known)
{
    forget_tail(tail);
    tail->tails = Py_NewRef(known->tails);
    tail->close = Py_XNewRef(known->close);
    tail->width = known->width;
}

static int learn_tail(const taking *of, tail_source *tail, PyObject *tails)
{
    if (tail->tails == tails) return 0;
    if (of->turn->tail.tails == tails) {
        use_tail(tail, &of->turn->tail);
        return 0;
    }
    forget_tail(tail);
    if (!PyDict_Check(tails)) {
        PyErr_SetString(PyExc_TypeError, "a route's tails are a dict");
        return -1;
    }
    PyObject *close = PyObject_GetAttr(tails, s_close), *width = close ? PyObject_GetAttr(tails, s_width) : NULL;
    Py_ssize_t wide = width != NULL ? PyLong_AsSsize_t(width) : -1;
    if (wide >= 0 && PyBytes_CheckExact(close)) {
        tail->width = wide;
        tail->close = Py_NewRef(close);
    }
    Py_XDECREF(close);
    Py_XDECREF(width);
    PyErr_Clear(); /* a dict of another class has none */
    tail->tails = Py_NewRef(tails);
    use_tail(&of->turn->tail, tail);
    return 0;
}

/* The tail for a packet identifier from the dict: a new reference. */
static PyObject *tail_of(PyObject *tails, unsigned packet_id)
{
    PyObject *key = PyLong_FromLong((long)packet_id);
    if (key == NULL) return NULL;
    PyObject *found = PyDict_GetItemWithError(tails, key);
    if (found != NULL) Py_INCREF(found);
    else if (!PyErr_Occurred()) found = PyObject_GetItem(tails, key); /* __missing__ makes it */
    Py_DECREF(key);
    if (found != NULL && !PyBytes_CheckExact(found)) {
        PyErr_SetString(PyExc_TypeError, "a tail is bytes");
        Py_CLEAR(found);
    }
    return found;
}

/* A body: the tail, the payload. A new reference. */
static PyObject *body_of(tail_source *tail, unsigned packet_id, const unsigned char *payload, Py_ssize_t length)
{
    char digits[8];
    int count = 0;
    PyObject *found = NULL;
    Py_ssize_t width = tail->width;
    if (tail->close != NULL && width > 0) {
        unsigned rest = packet_id;
        do digits[7 - count++] = (char)('0' + rest % 10);
        while ((rest /= 10) != 0);
    }
    if (tail->close == NULL || count + PyBytes_GET_SIZE(tail->close) > width) {
        if ((found = tail_of(tail->tails, packet_id)) == NULL) return NULL;
        width = PyBytes_GET_SIZE(found);
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, width + length);
    if (body != NULL) {
        char *at = PyBytes_AS_STRING(body);
        if (found != NULL) memcpy(at, PyBytes_AS_STRING(found), (size_t)width);
        else if (width > 0) {
            Py_ssize_t closing = PyBytes_GET_SIZE(tail->close);
            memcpy(at, digits + 8 - count, (size_t)count);
            memcpy(at + count, PyBytes_AS_STRING(tail->close), (size_t)closing);
            memset(at + count + closing, ' ', (size_t)(width - count - closing));
        }
        memcpy(at + width, payload, (size_t)length);
    }
    Py_XDECREF(found);
    return body;
}
