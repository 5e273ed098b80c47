/*
 * The sockets of MQI programs: many read or written in one call, and the usual calls taken apart in one step.
 *
 * receive() reads once each socket that a poll found readable and nothing else; send_each() sends once to each. Both do
 * the usual case only: a socket that is gone, has an error or does not take all is left to the caller. usual_call() knows
 * MQPUT without message properties, MQGET and MQCMIT that are one whole frame. `sockets.py` and `usual_calls.py` have the
 * same functions in Python, with which the tests compare these.
 *
 * The interpreter's lock is released once for all sends of a call. Reading keeps it: it only copies from the sockets'
 * buffers.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../built_from.h"

BUILT_FROM_THIS_FILE;

enum {
    PUT = 5, GET = 7, COMMIT = 9,
    HEADER = 8, MD = 364, TOKEN = 16,
    PUT_MD = HEADER + 16, PUT_PROPERTIES = PUT_MD + MD, PUT_DATA = PUT_PROPERTIES + 8,
    GET_TOKEN = HEADER + 28, GET_MD = GET_TOKEN + TOKEN, GET_SIZE = GET_MD + MD,
    LONGEST_FRAME = 112 << 20,
    LONGEST = 256 * 1024, /* that is read of a socket at a time */
};

/* ---- frames ------------------------------------------------------------------------------------------------------------ */

static int32_t number_at(const char *at)
{
    int32_t number;
    memcpy(&number, at, sizeof number); /* little-endian, as the memory of this platform is */
    return number;
}

static PyObject *put_fields(const char *at, Py_ssize_t size)
{
    if (size < PUT_DATA || number_at(at + PUT_PROPERTIES) != 0 || number_at(at + PUT_PROPERTIES + 4) != size - PUT_DATA) Py_RETURN_NONE;
    return Py_BuildValue("iiiiy#y#", number_at(at + HEADER), number_at(at + HEADER + 4), number_at(at + HEADER + 8),
                         number_at(at + HEADER + 12), at + PUT_MD, (Py_ssize_t)MD, at + PUT_DATA, size - PUT_DATA);
}

static PyObject *get_fields(const char *at, Py_ssize_t size)
{
    int32_t room = size == GET_SIZE ? number_at(at + HEADER + 24) : -1;
    if (room < 0) Py_RETURN_NONE;
    return Py_BuildValue("iiiiiiy#y#", number_at(at + HEADER), number_at(at + HEADER + 4), number_at(at + HEADER + 8),
                         number_at(at + HEADER + 12), number_at(at + HEADER + 16), room, at + GET_TOKEN, (Py_ssize_t)TOKEN,
                         at + GET_MD, (Py_ssize_t)MD);
}

PyDoc_STRVAR(usual_call_doc,
"usual_call(chunk) -> (verb, tag, fields) or None\n\n"
"The call that a chunk is, if it is one whole frame of the usual ones.");

static PyObject *usual_call(PyObject *Py_UNUSED(self), PyObject *chunk)
{
    if (!PyBytes_CheckExact(chunk)) {
        PyErr_SetString(PyExc_TypeError, "a chunk is bytes");
        return NULL;
    }
    const char *at = PyBytes_AS_STRING(chunk);
    Py_ssize_t size = PyBytes_GET_SIZE(chunk);
    if (size < HEADER) Py_RETURN_NONE;
    uint32_t length = (uint32_t)number_at(at);
    uint16_t tag;
    memcpy(&tag, at + 6, sizeof tag);
    int verb = (unsigned char)at[4], flags = (unsigned char)at[5];
    if (flags != 0 || length > LONGEST_FRAME || (Py_ssize_t)length + 4 != size) Py_RETURN_NONE;
    PyObject *fields;
    if (verb == PUT) fields = put_fields(at, size);
    else if (verb == GET) fields = get_fields(at, size);
    else if (verb == COMMIT && size == HEADER) fields = PyTuple_New(0);
    else Py_RETURN_NONE;
    if (fields == NULL || fields == Py_None) return fields;
    return Py_BuildValue("iiN", verb, (int)tag, fields);
}

/* ---- sockets ----------------------------------------------------------------------------------------------------------- */

/* 1: read, and in the list; 0: it is for the caller; -1: an error is set. */
static int read_one(PyObject *program, int fd, PyObject *arrived)
{
    static char bytes[LONGEST]; /* filled and copied under the interpreter's lock */
    ssize_t length = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (length <= 0) return 0;
    PyObject *pair = Py_BuildValue("Oy#", program, bytes, (Py_ssize_t)length);
    int failed = pair == NULL || PyList_Append(arrived, pair) < 0;
    Py_XDECREF(pair);
    return failed ? -1 : 1;
}

static int receive_event(PyObject *event, PyObject *programs, PyObject *arrived)
{
    if (!PyTuple_CheckExact(event) || PyTuple_GET_SIZE(event) != 2) {
        PyErr_SetString(PyExc_TypeError, "an event is a descriptor and what it is ready for");
        return -1;
    }
    PyObject *number = PyTuple_GET_ITEM(event, 0);
    long fd = PyLong_AsLong(number), ready = PyLong_AsLong(PyTuple_GET_ITEM(event, 1));
    if ((fd == -1 || ready == -1) && PyErr_Occurred()) return -1;
    if (ready != EPOLLIN) return 0;
    PyObject *program = PyDict_GetItemWithError(programs, number);
    if (program == NULL) return PyErr_Occurred() ? -1 : 0;
    return read_one(program, (int)fd, arrived);
}

PyDoc_STRVAR(receive_doc,
"receive(events, programs) -> (arrived, rest)\n\n"
"Read the sockets of a poll: (program, bytes), and the events left to the caller.");

static PyObject *receive(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *events, *programs;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &events, &PyDict_Type, &programs)) return NULL;
    PyObject *arrived = PyList_New(0), *rest = PyList_New(0);
    int failed = arrived == NULL || rest == NULL;
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(events); at++) {
        PyObject *event = PyList_GET_ITEM(events, at);
        int done = receive_event(event, programs, arrived);
        failed = done < 0 || (done == 0 && PyList_Append(rest, event) < 0);
    }
    if (!failed) return Py_BuildValue("NN", arrived, rest);
    Py_XDECREF(arrived);
    Py_XDECREF(rest);
    return NULL;
}

typedef struct {
    int fd;
    const char *data;
    Py_ssize_t length, sent;
} sending;

static int prepare(sending *one, PyObject *number, PyObject *data)
{
    long fd = PyLong_AsLong(number);
    if (fd == -1 && PyErr_Occurred()) return -1;
    if (!PyBytes_CheckExact(data)) {
        PyErr_SetString(PyExc_TypeError, "what is sent is bytes");
        return -1;
    }
    *one = (sending){(int)fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0};
    return 0;
}

/* What was not taken, as (position, bytes sent). */
static int note_rest(PyObject *rest, Py_ssize_t at, const sending *one)
{
    if (one->sent == one->length) return 0;
    PyObject *pair = Py_BuildValue("nn", at, one->sent < 0 ? (Py_ssize_t)0 : one->sent);
    int failed = pair == NULL || PyList_Append(rest, pair) < 0;
    Py_XDECREF(pair);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(send_each_doc,
"send_each(descriptors, datas) -> list of (position, bytes sent)\n\n"
"Send each socket its bytes once; the answer names those that did not take all. The lists must not change meanwhile.");

static PyObject *send_each(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *fds, *datas;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &fds, &PyTuple_Type, &datas)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(fds);
    if (PyTuple_GET_SIZE(datas) != count) {
        PyErr_SetString(PyExc_ValueError, "as many descriptors as bytes");
        return NULL;
    }
    PyObject *rest = PyList_New(0);
    sending *all = PyMem_Calloc(count ? (size_t)count : 1, sizeof *all);
    int failed = rest == NULL || all == NULL;
    if (all == NULL) PyErr_NoMemory();
    for (Py_ssize_t at = 0; !failed && at < count; at++)
        failed = prepare(&all[at], PyTuple_GET_ITEM(fds, at), PyTuple_GET_ITEM(datas, at)) < 0;
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t at = 0; at < count; at++)
            all[at].sent = send(all[at].fd, all[at].data, (size_t)all[at].length, MSG_DONTWAIT | MSG_NOSIGNAL);
        Py_END_ALLOW_THREADS
    }
    for (Py_ssize_t at = 0; !failed && at < count; at++) failed = note_rest(rest, at, &all[at]) < 0;
    PyMem_Free(all);
    if (!failed) return rest;
    Py_XDECREF(rest);
    return NULL;
}

static PyMethodDef methods[] = {
    {"usual_call", usual_call, METH_O, usual_call_doc},
    {"receive", receive, METH_VARARGS, receive_doc},
    {"send_each", send_each, METH_VARARGS, send_each_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.mqi._sockets", "The sockets of MQI programs; see the source.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__sockets(void)
{
    if (check_sources() < 0) return NULL;
    return PyModule_Create(&module);
}
