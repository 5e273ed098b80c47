/*
 * WebSocket frames on the server's side (RFC 6455, section 5): taken apart and unmasked, a whole chunk of them in a call.
 * `frames.py` has the same in Python, with which the tests compare this.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../built_from.h"

BUILT_FROM_THIS_FILE;

enum { CONTINUATION = 0, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };
enum { PROTOCOL_ERROR = 1002, UNSUPPORTED = 1003, NOT_UTF_8 = 1007 };
enum { MOST_CONTROL = 125, MOST_HEAD = 14 };

typedef struct {
    PyObject_HEAD
    const char *fault;          /* what the client did wrong */
    uint64_t left;              /* bytes still to come of the frame's payload */
    uint8_t key[4];             /* the masking key, turned to where the next byte is */
    uint8_t kind, inside, fragmented, over;
    uint8_t head_length, control_length;
    uint8_t head[MOST_HEAD];    /* the beginning of a frame whose head is not complete */
    uint8_t control[MOST_CONTROL];
} frames;

/* What one call makes: payload is at most as long as the input; answers are a little longer. */
typedef struct {
    uint8_t *payload, *answers;
    size_t payload_length, answers_length, room;
} making;

static int answer(making *made, int kind, const uint8_t *data, size_t length)
{
    if (made->answers == NULL && (made->answers = PyMem_Malloc(made->room)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint8_t *to = made->answers + made->answers_length;
    *to++ = (uint8_t)(0x80 | kind);
    *to++ = (uint8_t)length;
    memcpy(to, data, length);
    made->answers_length += 2 + length;
    return 0;
}

static int end(frames *self, making *made, int code, const char *reason)
{
    uint8_t data[MOST_CONTROL];
    size_t length = strlen(reason);
    data[0] = (uint8_t)(code >> 8);
    data[1] = (uint8_t)code;
    memcpy(data + 2, reason, length);
    self->over = 1;
    self->fault = reason;
    return answer(made, CLOSE, data, length + 2);
}

static void unmask(frames *self, uint8_t *to, const uint8_t *from, size_t length)
{
    uint64_t wide;
    uint8_t keys[8];
    memcpy(keys, self->key, 4);
    memcpy(keys + 4, self->key, 4);
    memcpy(&wide, keys, 8);
    size_t at = 0;
    for (; at + 8 <= length; at += 8) {
        uint64_t word;
        memcpy(&word, from + at, 8);
        word ^= wide;
        memcpy(to + at, &word, 8);
    }
    for (; at < length; at++) to[at] = from[at] ^ keys[at & 7];
    for (int i = 0; i < 4; i++) self->key[i] = keys[(length + (size_t)i) & 3];
}

/* The first two bytes of a frame: NULL, or what is wrong with them. */
static const char *wrong_head(const frames *self, const uint8_t *head)
{
    int kind = head[0] & 15, final = head[0] & 0x80;
    if (head[0] & 0x70 || !(kind == CONTINUATION || kind == BINARY || kind == CLOSE || kind == PING || kind == PONG))
        return "reserved bits or an unknown kind of frame";
    if (!(head[1] & 0x80)) return "a frame that is not masked";
    if (kind >= CLOSE && (!final || (head[1] & 0x7F) > MOST_CONTROL)) return "a control frame that is too long or fragmented";
    if (kind < CLOSE && (kind == CONTINUATION) != self->fragmented) return "fragments that do not belong together";
    return NULL;
}

/* Read the head of a frame. Returned is its length, 0 if it is incomplete or the connection is over, -1 on errors. */
static Py_ssize_t begin(frames *self, making *made, const uint8_t *data, size_t length)
{
    if (length < 2) return 0;
    if ((data[0] & 15) == TEXT) return end(self, made, UNSUPPORTED, "MQTT needs binary frames"); /* [MQTT-6.0.0-1] */
    const char *wrong = wrong_head(self, data);
    if (wrong != NULL) return end(self, made, PROTOCOL_ERROR, wrong);
    unsigned brief = data[1] & 0x7F;
    size_t extended = brief == 126 ? 2 : brief == 127 ? 8 : 0, size = 2 + extended + 4;
    if (length < size) return 0;
    uint64_t long_length = extended ? 0 : brief;
    for (size_t at = 2; at < 2 + extended; at++) long_length = long_length << 8 | data[at];
    if (extended && (long_length < (extended == 2 ? 126u : 1u << 16) || long_length >> 63)) /* 5.2: as short as can be */
        return end(self, made, PROTOCOL_ERROR, "a length that is not minimal");
    self->kind = data[0] & 15;
    if (self->kind < CLOSE) self->fragmented = !(data[0] & 0x80);
    self->left = long_length;
    self->control_length = 0;
    self->inside = 1;
    memcpy(self->key, data + size - 4, 4);
    return (Py_ssize_t)size;
}

/* A control frame is complete (5.5). */
static int end_control(frames *self, making *made)
{
    size_t length = self->control_length;
    if (self->kind == PING) return answer(made, PONG, self->control, length);
    if (self->kind != CLOSE) return 0;
    if (length > 0) { /* 7.4 */
        int code = length > 1 ? self->control[0] << 8 | self->control[1] : 0;
        if (!((code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999)))
            return end(self, made, PROTOCOL_ERROR, "a close code that may not be sent");
        PyObject *reason = PyUnicode_DecodeUTF8((const char *)self->control + 2, (Py_ssize_t)length - 2, NULL);
        if (reason == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) return -1;
            PyErr_Clear();
            return end(self, made, NOT_UTF_8, "a reason that is not UTF-8");
        }
        Py_DECREF(reason);
    }
    self->over = 1;
    return answer(made, CLOSE, self->control, length);
}

/* What has arrived, without the beginning of a head that was kept. */
static int take(frames *self, making *made, const uint8_t *data, size_t length)
{
    size_t at = 0;
    while (!self->over && at < length) {
        if (!self->inside) {
            Py_ssize_t size;
            if (self->head_length) { /* a head in pieces: byte by byte */
                self->head[self->head_length++] = data[at++];
                size = begin(self, made, self->head, self->head_length);
                if (size > 0) self->head_length = 0;
            } else {
                size = begin(self, made, data + at, length - at);
                if (size > 0) at += (size_t)size;
                else if (size == 0 && !self->over) { /* incomplete: less than MOST_HEAD bytes are left */
                    memcpy(self->head, data + at, length - at);
                    self->head_length = (uint8_t)(length - at);
                    at = length;
                }
            }
            if (size < 0) return -1;
            if (size == 0) continue;
        }
        size_t piece = self->left < length - at ? (size_t)self->left : length - at;
        if (self->kind >= CLOSE) {
            unmask(self, self->control + self->control_length, data + at, piece);
            self->control_length = (uint8_t)(self->control_length + piece);
        } else {
            unmask(self, made->payload + made->payload_length, data + at, piece);
            made->payload_length += piece;
        }
        at += piece;
        self->left -= piece;
        if (self->left == 0) {
            self->inside = 0;
            if (self->kind >= CLOSE && end_control(self, made) < 0) return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(feed_doc, "feed(data) -> (payload, frames to send, whether the connection is over)");

static PyObject *feed(PyObject *object, PyObject *data)
{
    frames *self = (frames *)object;
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "frames are bytes");
        return NULL;
    }
    size_t length = (size_t)PyBytes_GET_SIZE(data);
    making made = {NULL, NULL, 0, 0, length + 2 * (MOST_CONTROL + 2)};
    PyObject *payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (payload == NULL) return NULL;
    made.payload = (uint8_t *)PyBytes_AS_STRING(payload);
    if (take(self, &made, (const uint8_t *)PyBytes_AS_STRING(data), length) < 0) {
        PyMem_Free(made.answers);
        Py_DECREF(payload);
        return NULL;
    }
    if (made.payload_length != length && _PyBytes_Resize(&payload, (Py_ssize_t)made.payload_length) < 0) {
        PyMem_Free(made.answers);
        return NULL;
    }
    PyObject *result = Py_BuildValue("Ny#O", payload, made.answers ? (char *)made.answers : "",
                                     (Py_ssize_t)made.answers_length, self->over ? Py_True : Py_False);
    PyMem_Free(made.answers);
    return result;
}

/* The length of a whole binary frame's head and payload; 0: it is none. */
static size_t whole_frame(const uint8_t *data, size_t length, size_t *head)
{
    if (length < 8 || data[0] != (0x80 | BINARY) || !(data[1] & 0x80)) return 0;
    size_t size = data[1] & 0x7F;
    *head = 6;
    if (size == 127) return 0;
    if (size == 126) {
        size = (size_t)data[2] << 8 | data[3];
        *head = 8;
        if (size < 126) return 0;
    }
    return size > length - *head ? 0 : *head + size;
}

PyDoc_STRVAR(whole_doc,
"whole(data) -> payload of data that are nothing but whole binary frames; None: feed has to take them.");

static PyObject *whole(PyObject *object, PyObject *data)
{
    frames *self = (frames *)object;
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "frames are bytes");
        return NULL;
    }
    const uint8_t *from = (const uint8_t *)PyBytes_AS_STRING(data);
    size_t length = (size_t)PyBytes_GET_SIZE(data), heads = 0, head = 0, at, size;
    if (self->inside || self->head_length || self->fragmented || self->over) Py_RETURN_NONE;
    for (at = 0; at < length; at += size, heads += head)
        if ((size = whole_frame(from + at, length - at, &head)) == 0) Py_RETURN_NONE;
    PyObject *payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(length - heads));
    if (payload == NULL) return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(payload);
    for (at = 0; at < length; at += size, to += size - head) {
        size = whole_frame(from + at, length - at, &head);
        memcpy(self->key, from + at + head - 4, 4);
        unmask(self, to, from + at + head, size - head);
    }
    return payload;
}

PyDoc_STRVAR(frame_doc, "frame(data) -> one binary frame of the server's.");

static PyObject *frame(PyObject *Py_UNUSED(module), PyObject *data)
{
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "frames are bytes");
        return NULL;
    }
    uint64_t length = (uint64_t)PyBytes_GET_SIZE(data);
    int extended = length < 126 ? 0 : length < 1 << 16 ? 2 : 8;
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length + 2 + extended);
    if (made == NULL) return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(made);
    *to++ = 0x80 | BINARY;
    *to++ = extended == 0 ? (uint8_t)length : extended == 2 ? 126 : 127;
    for (int shift = 8 * extended - 8; shift >= 0; shift -= 8) *to++ = (uint8_t)(length >> shift);
    memcpy(to, PyBytes_AS_STRING(data), length);
    return made;
}

static PyObject *fault(PyObject *self, void *Py_UNUSED(closure))
{
    const char *found = ((frames *)self)->fault;
    return PyUnicode_FromString(found == NULL ? "" : found);
}

static PyGetSetDef frames_attributes[] = {
    {"fault", fault, NULL, "What the client did wrong, for which the connection is over; otherwise empty.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef frames_methods[] = {
    {"feed", feed, METH_O, feed_doc},
    {"whole", whole, METH_O, whole_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject frames_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gateway.net._frames.Frames",
    .tp_basicsize = sizeof(frames),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = PyDoc_STR("Takes apart what one client sends."),
    .tp_methods = frames_methods,
    .tp_getset = frames_attributes,
    .tp_new = PyType_GenericNew,
};

static PyMethodDef methods[] = {
    {"frame", frame, METH_O, frame_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.net._frames", "WebSocket frames; see the source.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__frames(void)
{
    if (check_sources() < 0 || PyType_Ready(&frames_type) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddObjectRef(made, "Frames", (PyObject *)&frames_type) < 0) Py_CLEAR(made);
    return made;
}
