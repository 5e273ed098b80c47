/*
 * Reading from many sockets at once, and writing to many: one call for each instead of a few for every socket.
 *
 * receive() reads once each socket that a poll found readable and nothing else; write() sends once to each socket. Both
 * do the usual case only. A socket that has been closed by its peer, has an error, cannot take all, has bytes kept to be
 * sent first, or is not the hub's is left to the caller in Python. `wire.py` has the same two functions in Python, with
 * which the tests compare these.
 *
 * The interpreter's lock is released once for all sends of a call, not for each. Reading keeps it: it only copies from
 * the sockets' buffers, at most ROOM bytes in a call.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../built_from.h"

BUILT_FROM_THIS_FILE;

#define ROOM (512 * 1024)
#define LONGEST (64 * 1024)

static PyObject *s_connection, *s_proxy, *s_chunk, *s_direct;

/* The attribute as a small number; -1 with an error set, as PyLong_AsLong. */
static long number_of(PyObject *object, PyObject *name)
{
    PyObject *found = PyObject_GetAttr(object, name);
    if (found == NULL) return -1;
    long number = PyLong_AsLong(found);
    Py_DECREF(found);
    return number;
}

static int append_pair(PyObject *list, PyObject *first, PyObject *second)
{
    PyObject *pair = PyTuple_Pack(2, first, second);
    if (pair == NULL) return -1;
    int failed = PyList_Append(list, pair);
    Py_DECREF(pair);
    return failed;
}

/*
 * One readable socket. 1: read, and in its list; 0: it is for the caller; -1: an error is set. Only links without a
 * proxy's header to come are read here, while there is room for all that they may have.
 */
static int read_one(PyObject *link, int fd, Py_ssize_t brief, Py_ssize_t *room, PyObject *small, PyObject *large)
{
    static char bytes[LONGEST]; /* filled and copied under the interpreter's lock */
    long chunk = number_of(link, s_chunk);
    if (chunk == -1 && PyErr_Occurred()) return -1;
    if (chunk < 1 || chunk > LONGEST || chunk > *room) return 0;
    PyObject *proxy = PyObject_GetAttr(link, s_proxy);
    if (proxy == NULL) return -1;
    Py_DECREF(proxy);
    if (proxy != Py_None) return 0;
    PyObject *connection = PyObject_GetAttr(link, s_connection);
    if (connection == NULL) return -1;
    int done = 0;
    if (connection != Py_None) {
        ssize_t length = recv(fd, bytes, (size_t)chunk, MSG_DONTWAIT);
        if (length > 0) {
            *room -= length;
            PyObject *data = PyBytes_FromStringAndSize(bytes, length);
            done = data == NULL ? -1 : length <= brief ? append_pair(small, connection, data) : append_pair(large, link, data);
            Py_XDECREF(data);
            if (done == 0) done = 1;
        }
    }
    Py_DECREF(connection);
    return done;
}

PyDoc_STRVAR(receive_doc,
"receive(events, links, brief) -> (small, large, rest)\n\n"
"Read the sockets of a poll: (connection, bytes) of at most brief bytes, (link, bytes) of more, events for the caller.");

static PyObject *receive(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *events, *links;
    Py_ssize_t brief, room = ROOM;
    if (!PyArg_ParseTuple(args, "O!O!n", &PyList_Type, &events, &PyDict_Type, &links, &brief)) return NULL;
    PyObject *small = PyList_New(0), *large = PyList_New(0), *rest = PyList_New(0);
    if (small == NULL || large == NULL || rest == NULL) goto failed;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(events); at++) {
        PyObject *event = PyList_GET_ITEM(events, at);
        if (!PyTuple_CheckExact(event) || PyTuple_GET_SIZE(event) != 2) {
            PyErr_SetString(PyExc_TypeError, "an event is a descriptor and what it is ready for");
            goto failed;
        }
        PyObject *number = PyTuple_GET_ITEM(event, 0);
        long fd = PyLong_AsLong(number), ready = PyLong_AsLong(PyTuple_GET_ITEM(event, 1));
        if ((fd == -1 || ready == -1) && PyErr_Occurred()) goto failed;
        PyObject *link = ready == EPOLLIN ? PyDict_GetItemWithError(links, number) : NULL;
        if (link == NULL && PyErr_Occurred()) goto failed;
        int done = link == NULL ? 0 : read_one(link, (int)fd, brief, &room, small, large);
        if (done < 0 || (done == 0 && PyList_Append(rest, event) < 0)) goto failed;
    }
    return Py_BuildValue("NNN", small, large, rest);
failed:
    Py_XDECREF(small);
    Py_XDECREF(large);
    Py_XDECREF(rest);
    return NULL;
}

/* What is sent to one socket. */
typedef struct {
    int fd;
    const char *data;
    size_t length;
    ssize_t sent;
} sending;

/* Where to, and what; fd -1: it is for the caller. */
static int prepare(sending *one, PyObject *kind, PyObject *link, PyObject *data)
{
    one->fd = -1;
    one->sent = 0;
    if (!PyBytes_CheckExact(data)) {
        PyErr_SetString(PyExc_TypeError, "what is written is bytes");
        return -1;
    }
    one->data = PyBytes_AS_STRING(data);
    one->length = (size_t)PyBytes_GET_SIZE(data);
    if ((PyObject *)Py_TYPE(link) != kind) return 0;
    one->fd = (int)number_of(link, s_direct);
    return one->fd == -1 && PyErr_Occurred() ? -1 : 0;
}

PyDoc_STRVAR(write_doc,
"write(kind, links, datas) -> list of (position, bytes sent)\n\n"
"Send each link of this kind its bytes, if nothing waits before them; the answer names those that did not take all.");

static PyObject *write_each(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *kind, *links, *datas;
    if (!PyArg_ParseTuple(args, "OO!O!", &kind, &PyList_Type, &links, &PyList_Type, &datas)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(links);
    if (PyList_GET_SIZE(datas) != count) {
        PyErr_SetString(PyExc_ValueError, "as many links as bytes");
        return NULL;
    }
    PyObject *rest = PyList_New(0);
    sending *all = PyMem_New(sending, count ? count : 1);
    if (rest == NULL || all == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        if (prepare(&all[at], kind, PyList_GET_ITEM(links, at), PyList_GET_ITEM(datas, at)) < 0) goto failed;
    /* The caller's lists are his own and hold the bytes meanwhile. */
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < count; at++)
        if (all[at].fd >= 0) all[at].sent = send(all[at].fd, all[at].data, all[at].length, MSG_DONTWAIT | MSG_NOSIGNAL);
    Py_END_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < count; at++) {
        if (all[at].fd >= 0 && all[at].sent == (ssize_t)all[at].length) continue;
        PyObject *left = Py_BuildValue("nn", at, (Py_ssize_t)(all[at].sent < 0 ? 0 : all[at].sent));
        int failed = left == NULL || PyList_Append(rest, left) < 0;
        Py_XDECREF(left);
        if (failed) goto failed;
    }
    PyMem_Free(all);
    return rest;
failed:
    PyMem_Free(all);
    Py_XDECREF(rest);
    return NULL;
}

static PyMethodDef methods[] = {
    {"receive", receive, METH_VARARGS, receive_doc},
    {"write", write_each, METH_VARARGS, write_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.net._wire", "Many sockets at once; see the source.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__wire(void)
{
    if (check_sources() < 0) return NULL;
    struct { PyObject **where; const char *name; } names[] = {
        {&s_connection, "connection"}, {&s_proxy, "proxy"}, {&s_chunk, "chunk"}, {&s_direct, "direct"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].where = PyUnicode_InternFromString(names[i].name)) == NULL) return NULL;
    return PyModule_Create(&module);
}
