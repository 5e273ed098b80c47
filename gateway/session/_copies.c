/*
 * What is done with each of many copies for a session. copy_columns.py has the same functions in Python, which run where
 * there was no compiler at installation; the tests compare the two.
 *
 * Nothing is read beyond the bytes given: every length is checked against their end before it is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>
#include <structmember.h>

#include "../built_from.h"

BUILT_FROM_THIS_FILE;

enum { ID = 2, LONGEST = 0x0FFFFFFF };

static int wrong(const char *usage)
{
    PyErr_SetString(PyExc_TypeError, usage);
    return -1;
}

/* -- classes with slots, read in place -- */

enum { COPIES, ITEM, PUBLICATION, CLASSES };
static PyTypeObject *classes[CLASSES];
enum { FIRST, BODIES, WIDTH, TOKENS, COPIES_QOS, COPIES_RELEASED, ITEM_QOS, ITEM_RELEASED, ITEM_PUBLICATION, ITEM_TOKEN, REPORT,
       PAYLOAD, FIELDS };
static const struct { int owner; const char *name; } fields[FIELDS] = {
    {COPIES, "first"}, {COPIES, "bodies"}, {COPIES, "width"}, {COPIES, "tokens"}, {COPIES, "qos"},
    {COPIES, "released"}, {ITEM, "qos"}, {ITEM, "released"},
    {ITEM, "publication"}, {ITEM, "token"}, {PUBLICATION, "report"}, {PUBLICATION, "payload"},
};
static Py_ssize_t offsets[FIELDS];

/* A borrowed reference; NULL, with an error, where there is nothing. */
static PyObject *field(PyObject *object, int which)
{
    PyObject *value = *(PyObject **)((char *)object + offsets[which]);
    if (value == NULL) PyErr_Format(PyExc_AttributeError, "%s has no value", fields[which].name);
    return value;
}

/* A field that is a number from 0; -1 with an error set. */
static Py_ssize_t number(PyObject *object, int which)
{
    PyObject *value = field(object, which);
    Py_ssize_t found = value == NULL ? -1 : PyLong_AsSsize_t(value);
    if (found < 0 && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%s is negative", fields[which].name);
    return found < 0 ? -1 : found;
}

PyDoc_STRVAR(configure_doc,
"configure(copies, item, publication) -> None\n\nThe classes whose slots are read from now on.");

static PyObject *configure(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *given[CLASSES];
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &given[0], &PyType_Type, &given[1], &PyType_Type, &given[2]))
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
    memcpy(offsets, found, sizeof offsets);
    for (int i = 0; i < CLASSES; i++) Py_XSETREF(classes[i], (PyTypeObject *)Py_NewRef(given[i]));
    Py_RETURN_NONE;
}

/* -- what is stored -- */

PyDoc_STRVAR(numbered_doc,
"numbered(payloads, first, blocks, back) -> list\n\n"
"What is stored of each: its packet identifier and the payload. With properties of each: these with their length, and\n"
"`back`, before the identifier.");

static PyObject *numbered_one(PyObject *payload, PyObject *block, PyObject *back, Py_ssize_t packet_id)
{
    Py_ssize_t length = PyBytes_GET_SIZE(payload), own = block == NULL ? 0 : PyBytes_GET_SIZE(block);
    Py_ssize_t behind = block == NULL ? 0 : PyBytes_GET_SIZE(back), front = block == NULL ? 0 : 4 + own + behind;
    PyObject *body = own >> 32 ? NULL : PyBytes_FromStringAndSize(NULL, front + ID + length);
    if (body == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "properties are too long");
        return NULL;
    }
    unsigned char *at = (unsigned char *)PyBytes_AS_STRING(body);
    if (block != NULL) {
        for (int i = 0; i < 4; i++) *at++ = (unsigned char)(own >> 8 * i);
        memcpy(at, PyBytes_AS_STRING(block), (size_t)own);
        memcpy(at + own, PyBytes_AS_STRING(back), (size_t)behind);
        at += own + behind;
    }
    at[0] = (unsigned char)packet_id;
    at[1] = (unsigned char)(packet_id >> 8);
    memcpy(at + ID, PyBytes_AS_STRING(payload), (size_t)length);
    return body;
}

/* What is at a place of a list, or NULL: the collector may have run and changed it. */
static PyObject *bytes_at(PyObject *list, Py_ssize_t i)
{
    PyObject *found = i < PyList_GET_SIZE(list) ? PyList_GET_ITEM(list, i) : NULL;
    return found != NULL && PyBytes_CheckExact(found) ? found : NULL;
}

static PyObject *numbered(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    static const char usage[] = "numbered(list of bytes, int, list of as many bytes or None, bytes), up to 65535";
    Py_ssize_t first = nargs == 2 || nargs == 4 ? PyLong_AsSsize_t(args[1]) : -1;
    if (first == -1 && PyErr_Occurred()) return NULL;
    PyObject *blocks = nargs == 4 && args[2] != Py_None ? args[2] : NULL, *back = nargs == 4 ? args[3] : NULL;
    if (first < 0 || !PyList_CheckExact(args[0]) || first + PyList_GET_SIZE(args[0]) > 65536 ||
        (blocks != NULL && !PyList_CheckExact(blocks)) || (back != NULL && !PyBytes_CheckExact(back))) {
        wrong(usage);
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(args[0]);
    PyObject *made = PyList_New(count);
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        PyObject *payload = bytes_at(args[0], i), *block = blocks == NULL ? NULL : bytes_at(blocks, i), *body = NULL;
        if (payload == NULL || (blocks != NULL && block == NULL)) wrong(usage);
        else body = numbered_one(payload, block, back, first + i);
        if (body == NULL) Py_CLEAR(made);
        else PyList_SET_ITEM(made, i, body);
    }
    return made;
}

/* -- packets -- */

static int digits_of(Py_ssize_t length) { return length < 128 ? 1 : length < 16384 ? 2 : length < 2097152 ? 3 : 4; }

typedef struct {
    int first;
    const char *topic, *middle, *back;
    Py_ssize_t topic_length, middle_length, back_length, packet_id, width, longest;
    PyObject *topics; /* NULL: all have the same */
    PyObject *bodies, *blocks; /* blocks: NULL: `middle` has all properties, and their length */
} form;

/* Have the next packet of a topic; -1: an error is set. */
static int use_topic(form *like, PyObject *topic)
{
    if (topic == NULL || PyBytes_GET_SIZE(topic) > 65535) return wrong("there are as many topics as packets, of up to 65535 bytes");
    like->topic = PyBytes_AS_STRING(topic);
    like->topic_length = PyBytes_GET_SIZE(topic);
    return 0;
}

/* The bytes of the properties of a copy, without their length. */
static Py_ssize_t properties_of(const form *like, Py_ssize_t i)
{
    return like->middle_length + PyBytes_GET_SIZE(PyList_GET_ITEM(like->blocks, i)) + like->back_length;
}

/* The remaining length of the packet of a copy; -1: it would be longer than allowed; -2: an error is set. */
static Py_ssize_t remaining_of(const form *like, Py_ssize_t i)
{
    PyObject *body = bytes_at(like->bodies, i);
    if (body == NULL || PyBytes_GET_SIZE(body) < like->width || (like->blocks != NULL && bytes_at(like->blocks, i) == NULL))
        return wrong("bodies are bytes of `width` and more, and there are as many blocks") - 1;
    Py_ssize_t properties = like->middle_length;
    if (like->blocks != NULL) {
        properties = properties_of(like, i);
        properties += digits_of(properties);
    }
    Py_ssize_t length = 2 + like->topic_length + (like->first & 6 ? ID : 0) + properties + PyBytes_GET_SIZE(body) - like->width;
    return length > LONGEST || 1 + digits_of(length) + length > like->longest ? -1 : length;
}

static unsigned char *write_number(unsigned char *at, Py_ssize_t number)
{
    do *at++ = (unsigned char)((number & 127) | (number > 127 ? 128 : 0));
    while ((number >>= 7) != 0);
    return at;
}

static unsigned char *write_bytes(unsigned char *at, const char *bytes, Py_ssize_t length)
{
    memcpy(at, bytes, (size_t)length);
    return at + length;
}

static unsigned char *write_packet(unsigned char *at, const form *like, Py_ssize_t i, Py_ssize_t packet_id)
{
    PyObject *body = PyList_GET_ITEM(like->bodies, i);
    *at++ = (unsigned char)like->first;
    at = write_number(at, remaining_of(like, i));
    *at++ = (unsigned char)(like->topic_length >> 8);
    *at++ = (unsigned char)like->topic_length;
    at = write_bytes(at, like->topic, like->topic_length);
    if (like->first & 6) {
        *at++ = (unsigned char)(packet_id >> 8);
        *at++ = (unsigned char)packet_id;
    }
    if (like->blocks != NULL) at = write_number(at, properties_of(like, i));
    at = write_bytes(at, like->middle, like->middle_length);
    if (like->blocks != NULL) {
        PyObject *block = PyList_GET_ITEM(like->blocks, i);
        at = write_bytes(at, PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block));
        at = write_bytes(at, like->back, like->back_length);
    }
    return write_bytes(at, PyBytes_AS_STRING(body) + like->width, PyBytes_GET_SIZE(body) - like->width);
}

PyDoc_STRVAR(wire_doc,
"wire(first, topic, middle, packet_id, bodies, begin, end, width, longest, blocks, back) -> bytes or None\n\n"
"The PUBLISH packets of some copies: `first` is their first byte, `middle` stands between packet identifier and payload,\n"
"`width` bytes of each body before its payload. With properties of each: these come after the properties in `middle`\n"
"and before those in `back`. A list of topics has one for each. None: one would be longer than allowed.");

static PyObject *wire(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    static const char usage[] = "wire(int, bytes or list of bytes, bytes, int, list of bytes, int, int, int, int, list of bytes or None, bytes)";
    if ((nargs != 9 && nargs != 11) || !(PyBytes_CheckExact(args[1]) || PyList_CheckExact(args[1])) || !PyBytes_CheckExact(args[2]) || !PyList_CheckExact(args[4]) ||
        (nargs == 11 && ((args[9] != Py_None && !PyList_CheckExact(args[9])) || !PyBytes_CheckExact(args[10])))) {
        wrong(usage);
        return NULL;
    }
    form like = {
        .topics = PyList_CheckExact(args[1]) ? args[1] : NULL,
        .middle = PyBytes_AS_STRING(args[2]), .middle_length = PyBytes_GET_SIZE(args[2]),
        .back = nargs == 11 ? PyBytes_AS_STRING(args[10]) : "", .back_length = nargs == 11 ? PyBytes_GET_SIZE(args[10]) : 0,
        .packet_id = PyLong_AsSsize_t(args[3]), .width = PyLong_AsSsize_t(args[7]), .longest = PyLong_AsSsize_t(args[8]),
        .bodies = args[4], .blocks = nargs == 11 && args[9] != Py_None ? args[9] : NULL,
    };
    long first = PyLong_AsLong(args[0]);
    Py_ssize_t begin = PyLong_AsSsize_t(args[5]), end = PyLong_AsSsize_t(args[6]), size = 0;
    if (PyErr_Occurred()) return NULL;
    if (end > PyList_GET_SIZE(like.bodies)) end = PyList_GET_SIZE(like.bodies);
    if (begin < 0 || begin > end || like.width < 0 || first < 0x30 || first > 0x3f ||
        like.packet_id < 0 || (first & 6 && like.packet_id + end - begin > 65536)) {
        wrong(usage);
        return NULL;
    }
    like.first = (int)first;
    if (like.topics == NULL && use_topic(&like, args[1]) < 0) return NULL;
    for (Py_ssize_t i = begin; i < end; i++) {
        if (like.topics != NULL && use_topic(&like, bytes_at(like.topics, i - begin)) < 0) return NULL;
        Py_ssize_t length = remaining_of(&like, i);
        if (length == -2) return NULL;
        if (length == -1) Py_RETURN_NONE;
        size += 1 + digits_of(length) + length;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, size); /* bytes are not collected: nothing changes the lists here */
    unsigned char *at = made == NULL ? NULL : (unsigned char *)PyBytes_AS_STRING(made);
    for (Py_ssize_t i = begin; at != NULL && i < end; i++) {
        if (like.topics != NULL) use_topic(&like, PyList_GET_ITEM(like.topics, i - begin));
        at = write_packet(at, &like, i, like.packet_id + i - begin);
    }
    return made;
}

/* -- PUBACKs and PUBCOMPs -- */

enum { PUBACK = 0x40, PUBCOMP = 0x70 };

/* Whether an acknowledgement with this reason code is like one without. */
static int is_plain_reason(int first, unsigned char reason)
{
    static const unsigned char puback[] = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}, pubcomp[] = {0x00, 0x92};
    return first == PUBACK ? memchr(puback, reason, sizeof puback) != NULL : memchr(pubcomp, reason, sizeof pubcomp) != NULL;
}

typedef struct {
    const unsigned char *data;
    Py_ssize_t end, size; /* bytes of the chunk; payload bytes of what was stored and is settled */
    int first, version_5;
    PyObject *inflight, *tokens;
} settling;

/* Where the acknowledgement at `at` ends, if there is a whole one without properties; otherwise 0. */
static Py_ssize_t end_of_ack(const settling *with, Py_ssize_t at)
{
    const unsigned char *data = with->data;
    if (at + 4 > with->end || data[at] != with->first) return 0;
    Py_ssize_t length = data[at + 1];
    if (length == 2) return at + 4;
    if (!with->version_5 || length < 3 || length > 4 || at + 2 + length > with->end) return 0;
    if (!is_plain_reason(with->first, data[at + 4])) return 0;
    return length == 3 ? at + 5 : data[at + 5] == 0 ? at + 6 : 0;
}

/* Whether what is in flight waits for this acknowledgement; -1: an error is set. */
static int waits(const settling *with, PyObject *found, int qos_field, int released_field)
{
    PyObject *released = field(found, released_field);
    Py_ssize_t qos = number(found, qos_field);
    if (released == NULL || qos < 0) return -1;
    return with->first == PUBACK ? qos == 1 : released == Py_True;
}

/* One of several copies: 1: its token, if it has one, is added; 0: it waits for something else; -1: an error is set. */
static int settle_copy(settling *with, PyObject *copies, Py_ssize_t packet_id)
{
    int fits = waits(with, copies, COPIES_QOS, COPIES_RELEASED);
    if (fits != 1) return fits;
    Py_ssize_t first = number(copies, FIRST), width = number(copies, WIDTH);
    PyObject *own = field(copies, TOKENS), *bodies = field(copies, BODIES);
    if (first < 0 || width < 0 || own == NULL || bodies == NULL) return -1;
    Py_ssize_t place = packet_id - first;
    PyObject *body = PyList_CheckExact(bodies) && place >= 0 ? bytes_at(bodies, place) : NULL;
    if (body == NULL) return wrong("a packet identifier names copies it is none of");
    if (PyTuple_CheckExact(own) && PyTuple_GET_SIZE(own) == 0) return 1;
    with->size += PyBytes_GET_SIZE(body) - width;
    PyObject *token = PySequence_GetItem(own, place);
    int failed = token == NULL || PyList_Append(with->tokens, token) < 0;
    Py_XDECREF(token);
    return failed ? -1 : 1;
}

/* A single copy: as settle_copy(); 0 also where reports are wanted. */
static int settle_item(settling *with, PyObject *item)
{
    int fits = waits(with, item, ITEM_QOS, ITEM_RELEASED);
    if (fits != 1) return fits;
    PyObject *publication = field(item, ITEM_PUBLICATION), *token = field(item, ITEM_TOKEN);
    if (publication == NULL || token == NULL) return -1;
    if (!Py_IS_TYPE(publication, classes[PUBLICATION])) return 0;
    PyObject *report = field(publication, REPORT), *payload = field(publication, PAYLOAD);
    if (report == NULL || payload == NULL) return -1;
    if (!PyBytes_CheckExact(report) || PyBytes_GET_SIZE(report) != 0 || !PyBytes_CheckExact(payload)) return 0;
    if (token == Py_None) return 1;
    with->size += PyBytes_GET_SIZE(payload);
    return PyList_Append(with->tokens, token) < 0 ? -1 : 1;
}

/* As settle_copy(), for whatever a packet identifier names. */
static int settle_one(settling *with, Py_ssize_t packet_id)
{
    PyObject *key = PyLong_FromSsize_t(packet_id);
    PyObject *found = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(with->inflight, key));
    int done = 0;
    if (found == NULL) done = PyErr_Occurred() ? -1 : 0;
    else if (Py_IS_TYPE(found, classes[COPIES])) done = settle_copy(with, found, packet_id);
    else if (Py_IS_TYPE(found, classes[ITEM])) done = settle_item(with, found);
    if (done == 1 && PyDict_DelItem(with->inflight, key) < 0) done = -1;
    Py_XDECREF(found);
    Py_XDECREF(key);
    return done;
}

PyDoc_STRVAR(settle_doc,
"settle(data, offset, first, version_5, inflight, tokens) -> (int, int, int)\n\n"
"Remove what the PUBACKs, or PUBCOMPs, at `offset` answer from what is in flight, and add the tokens of what is stored\n"
"of it. `first` is their first byte. Only those without properties are looked at, and for messages of which nobody wants\n"
"reports. Returns the offset of the first packet that is anything else, how many were answered, and the payload bytes of\n"
"those stored.");

static PyObject *settle(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    static const char usage[] = "settle(bytes, int, 0x40 or 0x70, bool, dict, list)";
    if (nargs != 6 || !PyBytes_CheckExact(args[0]) || !PyDict_CheckExact(args[4]) || !PyList_CheckExact(args[5]) ||
        classes[COPIES] == NULL) {
        wrong(usage);
        return NULL;
    }
    long first = PyLong_AsLong(args[2]);
    settling with = {
        .data = (const unsigned char *)PyBytes_AS_STRING(args[0]), .end = PyBytes_GET_SIZE(args[0]), .first = (int)first,
        .version_5 = PyObject_IsTrue(args[3]), .inflight = args[4], .tokens = args[5],
    };
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), stop, count = 0;
    int more = 1;
    if (PyErr_Occurred()) return NULL;
    if (at < 0 || (first != PUBACK && first != PUBCOMP)) {
        wrong(usage);
        return NULL;
    }
    while ((stop = end_of_ack(&with, at)) != 0) {
        more = settle_one(&with, (Py_ssize_t)with.data[at + 2] << 8 | with.data[at + 3]);
        if (more != 1) break;
        at = stop;
        count++;
    }
    return more < 0 ? NULL : Py_BuildValue("nnn", at, count, with.size);
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS, configure_doc},
    {"numbered", (PyCFunction)(void (*)(void))numbered, METH_FASTCALL, numbered_doc},
    {"wire", (PyCFunction)(void (*)(void))wire, METH_FASTCALL, wire_doc},
    {"settle", (PyCFunction)(void (*)(void))settle, METH_FASTCALL, settle_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.session._copies", "Copies for a session; copy_columns.py calls it.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__copies(void)
{
    if (check_sources() < 0) return NULL;
    return PyModule_Create(&module);
}
