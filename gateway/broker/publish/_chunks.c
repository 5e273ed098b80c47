/*
 * The fast lane of chunks: from the bytes of one connection to the columns of a unit of work. fast.py calls it.
 *
 * take() reads PUBLISH packets of QoS 0 or 1 that follow one another in a chunk; stage_records() and stage_run() those
 * of QoS 2; release_records() and release_run() their PUBRELs. They go on as long as each packet has the first byte
 * given (neither DUP nor RETAIN), no properties, a payload within the limit, and a topic whose cached route has the fast
 * path and an address whose columns are prepared. At anything else, an incomplete packet included, they stop: the caller
 * prepares the columns, or leaves the rest of the chunk to the plain lane (plain.py), which has the same result and with
 * which the tests compare them.
 *
 * Nothing is read beyond the chunk: every length is checked against its end before it is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <string.h>
#include <structmember.h>

enum { STAGED_ID = 2 }; /* bytes of the packet identifier before the payload in a staged record; configure() checks it */

/* Fetch memory that is read soon; never an error, whatever the address. Without GCC or clang: nothing. */
#if defined(__GNUC__)
#define prefetch(at) __builtin_prefetch(at)
#else
#define prefetch(at) ((void)(at))
#endif

#include "_topic_cache.h"
#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

/* -- routes: instances of one class with slots, read in place -- */

static PyTypeObject *route_type;
static long path_direct, path_staged; /* FastPath.DIRECT and FastPath.STAGED, from configure() */
enum { AT_FAST_PATH, AT_VERSION, AT_CHANGES, AT_ADDRESS, AT_HEAD, AT_TAILS, AT_STAGED, FIELDS };
static const char *const field_names[FIELDS] = {"fast_path", "version", "changes", "address", "head", "tails", "staged_head"};
static Py_ssize_t field_offsets[FIELDS];

/* A borrowed reference; NULL, with an error, where there is nothing. */
static PyObject *field(PyObject *route, int which)
{
    PyObject *value = *(PyObject **)((char *)route + field_offsets[which]);
    if (value == NULL) PyErr_Format(PyExc_AttributeError, "a route without %s", field_names[which]);
    return value;
}

PyDoc_STRVAR(configure_doc,
"configure(route, direct, staged, staged_id) -> None\n\n"
"The class of routes, whose slots are read from now on; its fast paths that are taken here; bytes of a packet identifier\n"
"in a staged record.");

static PyObject *configure(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *type;
    long direct, staged, staged_id;
    if (!PyArg_ParseTuple(args, "O!lll", &PyType_Type, &type, &direct, &staged, &staged_id)) return NULL;
    if (staged_id != STAGED_ID) return PyErr_Format(PyExc_ValueError, "a packet identifier has %d bytes here", STAGED_ID);
    Py_ssize_t found[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        PyObject *descriptor = PyObject_GetAttrString(type, field_names[i]);
        if (descriptor == NULL) return NULL;
        int is_slot = Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
        PyMemberDef *member = is_slot ? ((PyMemberDescrObject *)descriptor)->d_member : NULL;
        found[i] = member != NULL && member->type == T_OBJECT_EX ? member->offset : 0;
        Py_DECREF(descriptor); /* the class holds it */
        if (found[i] == 0) return PyErr_Format(PyExc_TypeError, "%s is not a slot of the class", field_names[i]);
    }
    memcpy(field_offsets, found, sizeof found);
    Py_INCREF(type);
    Py_XSETREF(route_type, (PyTypeObject *)type);
    path_direct = direct;
    path_staged = staged;
    Py_RETURN_NONE;
}

/* The fast path of a route; 0: it has none, or subscriptions have changed since; -1: an error is set. */
static long fast_path_of(PyObject *route)
{
    if (route_type == NULL || !Py_IS_TYPE(route, route_type)) {
        PyErr_SetString(PyExc_TypeError, "caches hold routes");
        return -1;
    }
    PyObject *path = field(route, AT_FAST_PATH), *version = field(route, AT_VERSION), *changes = field(route, AT_CHANGES);
    if (path == NULL || version == NULL || changes == NULL) return -1;
    if (!PyLong_Check(path) || !PyLong_CheckExact(version) || !PyList_CheckExact(changes) || PyList_GET_SIZE(changes) != 1) {
        PyErr_SetString(PyExc_TypeError, "fast_path and version are numbers, and a route's changes are a list of one");
        return -1;
    }
    if (version != PyList_GET_ITEM(changes, 0)) {
        int same = PyObject_RichCompareBool(version, PyList_GET_ITEM(changes, 0), Py_EQ);
        if (same != 1) return same;
    }
    return PyLong_AsLong(path);
}

/* Use a route that was found, whose reference is handed over; returns as look_up() does. */
static int use_route(PyObject *found, long wanted, PyObject **route)
{
    long path = fast_path_of(found);
    if (path != wanted) {
        Py_DECREF(found);
        return path == -1 && PyErr_Occurred() ? -1 : 0;
    }
    Py_XSETREF(*route, found);
    return 1;
}

/*
 * The route of a topic: the one in the cache, or what `missing(first, topic)` answers. 1: here it is (a new reference);
 * 0: it does not have the fast path wanted; -1: an error is set.
 */
static int look_up(PyObject *cache, PyObject *missing, int first, const unsigned char *topic, Py_ssize_t length,
                   long wanted, PyObject **route)
{
    PyObject *key = PyBytes_FromStringAndSize((const char *)topic, length);
    if (key == NULL) return -1;
    PyObject *found = PyDict_GetItemWithError(cache, key);
    if (found != NULL) Py_INCREF(found);
    else if (!PyErr_Occurred()) found = PyObject_CallFunction(missing, "iO", first, key);
    Py_DECREF(key);
    return found == NULL ? -1 : use_route(found, wanted, route);
}

/* -- columns -- */

typedef struct {
    PyObject *address, *heads, *bodies, *released; /* references are held; released: a list, or Py_None */
} columns;

static void close_columns(columns *open)
{
    Py_CLEAR(open->address);
    Py_CLEAR(open->heads);
    Py_CLEAR(open->bodies);
    Py_CLEAR(open->released);
}

/* 1: the columns of this very address are open now; 0: they are not among those prepared; -1: an error is set. */
static int open_columns(columns *open, PyObject *prepared, PyObject *address)
{
    if (open->address == address) return 1;
    close_columns(open);
    PyObject *entry = PyDict_GetItemWithError(prepared, address);
    if (entry == NULL) return PyErr_Occurred() ? -1 : 0;
    if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 4 || !PyList_CheckExact(PyTuple_GET_ITEM(entry, 1)) ||
        !PyList_CheckExact(PyTuple_GET_ITEM(entry, 2))) {
        PyErr_SetString(PyExc_TypeError, "columns are (address, heads, bodies, released)");
        return -1;
    }
    if (PyTuple_GET_ITEM(entry, 0) != address) return 0; /* an equal address of another rule: its columns are to be prepared */
    open->address = Py_NewRef(address);
    open->heads = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
    open->bodies = Py_NewRef(PyTuple_GET_ITEM(entry, 2));
    open->released = Py_NewRef(PyTuple_GET_ITEM(entry, 3));
    return 1;
}

/* -- tails: what is between head and payload, with the packet identifier -- */

static PyObject *s_close, *s_width, *s_start, *s_step;

typedef struct {
    PyObject *tails;  /* a reference is held */
    PyObject *close;  /* a reference is held; NULL: the dict is asked for each number */
    Py_ssize_t width; /* 0: there is none */
} tail_source;

static void forget_tail(tail_source *tail)
{
    Py_CLEAR(tail->tails);
    Py_CLEAR(tail->close);
}

static int learn_tail(tail_source *tail, PyObject *tails)
{
    if (tail->tails == tails) return 0;
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
    return 0;
}

/* The tail for a packet identifier from the dict: a new reference. */
static PyObject *tail_of(PyObject *tails, unsigned packet_id)
{
    PyObject *number = PyLong_FromLong((long)packet_id);
    if (number == NULL) return NULL;
    PyObject *found = PyDict_GetItemWithError(tails, number);
    if (found != NULL) Py_INCREF(found);
    else if (!PyErr_Occurred()) found = PyObject_GetItem(tails, number); /* __missing__ makes it */
    Py_DECREF(number);
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

static int append(PyObject *list, PyObject *stolen)
{
    if (stolen == NULL) return -1;
    int failed = PyList_Append(list, stolen);
    Py_DECREF(stolen);
    return failed;
}

/* -- packets -- */

/*
 * Where the frame at `at` ends, and in *start where its body begins; 0: incomplete, longer than allowed, or malformed.
 * At most four bytes of remaining length, in the shortest form only: the plain lane words the errors of others.
 */
static Py_ssize_t frame(const unsigned char *data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t longest, Py_ssize_t *start)
{
    Py_ssize_t length = 0, here = at + 1;
    for (int shift = 0; shift < 28; shift += 7, here++) {
        if (here >= end) return 0;
        length |= (Py_ssize_t)(data[here] & 0x7f) << shift;
        if (data[here] < 0x80) {
            if (data[here] == 0 && shift) return 0;
            *start = here + 1;
            Py_ssize_t stop = *start + length;
            return stop > end || stop - at > longest ? 0 : stop;
        }
    }
    return 0;
}

typedef struct {
    const unsigned char *data;
    Py_ssize_t end, max_packet, max_payload;
    int first, version_5;
} reading;

typedef struct {
    const unsigned char *topic, *payload;
    Py_ssize_t topic_length, length, stop;
    unsigned packet_id;
} publication;

/* Whether there is an ordinary publication at `at`. */
static int read_publication(const reading *from, Py_ssize_t at, publication *found)
{
    const unsigned char *data = from->data;
    if (at + 4 > from->end || data[at] != from->first) return 0;
    Py_ssize_t start, stop = frame(data, at, from->end, from->max_packet, &start);
    if (stop == 0 || start + 2 > stop) return 0;
    Py_ssize_t topic_length = (Py_ssize_t)data[start] << 8 | data[start + 1];
    Py_ssize_t mark = start + 2 + topic_length, body = mark + (from->first & 6 ? 2 : 0);
    if (body > stop) return 0;
    if (from->version_5) {
        if (body == stop || data[body] != 0) return 0;
        body++;
    }
    found->packet_id = from->first & 6 ? (unsigned)data[mark] << 8 | data[mark + 1] : 0;
    found->topic = data + start + 2;
    found->topic_length = topic_length;
    found->payload = data + body;
    found->length = stop - body;
    found->stop = stop;
    return !((from->first & 6 && found->packet_id == 0) || found->length > from->max_payload);
}

static int same_topic(const publication *one, const publication *other)
{
    return one->topic_length == other->topic_length &&
           memcmp(one->topic, other->topic, (size_t)one->topic_length) == 0;
}

static int reading_of(PyObject *const *args, int first, reading *from, Py_ssize_t *at)
{
    if (!PyBytes_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "a chunk is bytes");
        return -1;
    }
    *at = PyLong_AsSsize_t(args[1]);
    from->data = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    from->end = PyBytes_GET_SIZE(args[0]);
    from->first = first;
    from->version_5 = PyObject_IsTrue(args[2]);
    from->max_packet = PyLong_AsSsize_t(args[3]);
    from->max_payload = PyLong_AsSsize_t(args[4]);
    if (!PyErr_Occurred() && *at < 0) PyErr_SetString(PyExc_TypeError, "an offset is not negative");
    return PyErr_Occurred() ? -1 : 0;
}

/* -- acknowledgements: one object for all of a call -- */

typedef struct {
    PyObject *bytes;
    Py_ssize_t used;
} answers;

static int begin_answers(answers *to, Py_ssize_t most)
{
    to->used = 0;
    to->bytes = PyBytes_FromStringAndSize(NULL, 4 * most);
    return to->bytes == NULL ? -1 : 0;
}

static void answer(answers *to, unsigned char first, unsigned packet_id)
{
    unsigned char *at = (unsigned char *)PyBytes_AS_STRING(to->bytes) + to->used;
    at[0] = first;
    at[1] = 2;
    at[2] = (unsigned char)(packet_id >> 8);
    at[3] = (unsigned char)packet_id;
    to->used += 4;
}

static int end_answers(answers *to, PyObject *replies)
{
    if (to->used == 0 || _PyBytes_Resize(&to->bytes, to->used) < 0) {
        int failed = to->used != 0;
        Py_CLEAR(to->bytes);
        return failed ? -1 : 0;
    }
    int failed = PyList_Append(replies, to->bytes);
    Py_CLEAR(to->bytes);
    return failed;
}

static PyObject *result(int failed, Py_ssize_t at, Py_ssize_t rows)
{
    return failed ? NULL : Py_BuildValue("nn", at, rows);
}

/* -- QoS 0 and 1 -- */

/*
 * Packets are read and looked up some at a time: a client may have thousands of topics, whose routes and heads are then
 * not in the processor's cache, and are prefetched together.
 */
enum { AHEAD = 16 };

typedef struct {
    publication one;
    PyObject *route; /* a reference is held; NULL: it has the topic of the one before, or is not in the cache */
    uint32_t hash;
    int is_other; /* whether the one before has another topic */
} upcoming;

static void forget_ahead(upcoming *ahead, int begin, int end)
{
    for (int i = begin; i < end; i++) Py_CLEAR(ahead[i].route);
}

/* Read the next packets, and prefetch the entries of their topics. */
static int read_ahead(const reading *from, Py_ssize_t at, const publication *before, const topic_cache *topics,
                      upcoming *ahead)
{
    int count = 0;
    for (; count < AHEAD && read_publication(from, at, &ahead[count].one); count++) {
        upcoming *next = &ahead[count];
        at = next->one.stop;
        next->route = NULL;
        if (topics != NULL) next->hash = topic_hash(next->one.topic, next->one.topic_length);
        int is_like = before->topic != NULL && (topics == NULL || count == 0 || next->hash == ahead[count - 1].hash);
        next->is_other = !is_like || !same_topic(&next->one, before);
        before = &next->one;
        if (topics != NULL && next->is_other) prefetch(index_at(topics, next->hash, 0));
    }
    for (int i = 0; topics != NULL && i < count; i++)
        if (ahead[i].is_other) prefetch_entry(topics, ahead[i].hash);
    return count;
}

static void prefetch_route(PyObject *route, const void *head)
{
    prefetch(route);
    prefetch((const char *)route + field_offsets[AT_VERSION]); /* the last slot that take() reads */
    prefetch(head);
}

/* The route of a topic in the cache, if there is one: borrowed. NULL with an error set: there is no memory. */
static PyObject *route_in(PyObject *cache, topic_cache *topics, const upcoming *next)
{
    const publication *one = &next->one;
    entry *found = topics != NULL ? find_entry(topics, next->hash, one->topic, one->topic_length) : NULL;
    if (found != NULL) {
        prefetch_route(found->route, found->head);
        return found->route;
    }
    PyObject *key = PyBytes_FromStringAndSize((const char *)one->topic, one->topic_length);
    PyObject *route = key != NULL ? PyDict_GetItemWithError(cache, key) : NULL;
    Py_XDECREF(key);
    if (route == NULL || route_type == NULL || !Py_IS_TYPE(route, route_type)) return route;
    const void *head = *(const void **)((char *)route + field_offsets[AT_HEAD]);
    prefetch_route(route, head);
    if (topics != NULL) keep_entry(topics, next->hash, one->topic, one->topic_length, route, head);
    return route;
}

/* Read and look up the next packets: how many they are; -1: an error is set. */
static int look_ahead(const reading *from, Py_ssize_t at, const publication *before, PyObject *cache, upcoming *ahead)
{
    topic_cache *topics = as_topic_cache(cache);
    if (topics != NULL && !make_room(topics)) topics = NULL;
    PyObject *found[AHEAD];
    int count = read_ahead(from, at, before, topics, ahead);
    for (int i = 0; i < count; i++)
        if ((found[i] = ahead[i].is_other ? route_in(cache, topics, &ahead[i]) : NULL) == NULL && PyErr_Occurred())
            return -1;
    for (int i = 0; i < count; i++) ahead[i].route = Py_XNewRef(found[i]); /* now, as this touches the prefetched routes */
    return count;
}

/* 1: one more row; 0: its route has another path, or columns that are not prepared; -1: an error is set. */
static int take_one(const reading *from, upcoming *next, PyObject *cache, PyObject *missing, PyObject *prepared,
                    PyObject **route, columns *open, tail_source *tail)
{
    const publication *one = &next->one;
    if (next->is_other) {
        PyObject *cached = next->route;
        next->route = NULL;
        int found = cached != NULL ? use_route(cached, path_direct, route)
                                   : look_up(cache, missing, from->first, one->topic, one->topic_length, path_direct, route);
        if (found != 1) return found;
        PyObject *address = field(*route, AT_ADDRESS), *tails = field(*route, AT_TAILS);
        if (address == NULL || tails == NULL) return -1;
        if ((found = open_columns(open, prepared, address)) != 1) return found;
        if (learn_tail(tail, tails) < 0) return -1;
    }
    PyObject *head = field(*route, AT_HEAD);
    if (head == NULL) return -1;
    if (append(open->bodies, body_of(tail, one->packet_id, one->payload, one->length)) < 0) return -1;
    return PyList_Append(open->heads, head) < 0 ? -1 : 1;
}

PyDoc_STRVAR(take_doc,
"take(data, offset, version_5, max_packet, max_payload, first, cache, missing, prepared, replies) -> (int, int)\n\n"
"Append publications of QoS 0 or 1 to the columns prepared for their addresses; returns the offset of the first packet\n"
"that is not taken, and how many were. The route of a topic that is not in the cache is missing(first, topic).");

static PyObject *take(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    reading from;
    Py_ssize_t at, rows = 0;
    if (nargs != 10) {
        PyErr_SetString(PyExc_TypeError, "take() takes 10 arguments");
        return NULL;
    }
    long first = PyLong_AsLong(args[5]);
    if (first == -1 && PyErr_Occurred()) return NULL;
    PyObject *cache = args[6], *missing = args[7], *prepared = args[8], *replies = args[9];
    if ((first != 0x30 && first != 0x32) || !PyDict_Check(cache) || !PyDict_CheckExact(prepared) ||
        !PyList_CheckExact(replies)) {
        PyErr_SetString(PyExc_TypeError, "take(bytes, int, bool, int, int, 0x30 or 0x32, dict, callable, dict, list)");
        return NULL;
    }
    if (reading_of(args, (int)first, &from, &at) < 0) return NULL;
    publication before = {NULL, NULL, 0, 0, 0, 0};
    upcoming ahead[AHEAD];
    PyObject *route = NULL;
    columns open = {NULL, NULL, NULL, NULL};
    tail_source tail = {NULL, NULL, 0};
    answers to = {NULL, 0};
    int more = 1, count, done = AHEAD;
    while (more == 1 && done == AHEAD && (count = look_ahead(&from, at, &before, cache, ahead)) != 0) {
        more = count < 0 || (to.bytes == NULL && begin_answers(&to, (from.end - at) / 6 + 1) < 0) ? -1 : 1;
        for (done = 0; more == 1 && done < count; done++) {
            const publication *one = &ahead[done].one;
            more = take_one(&from, &ahead[done], cache, missing, prepared, &route, &open, &tail);
            if (more != 1) break;
            if (one->packet_id) answer(&to, 0x40, one->packet_id);
            before = *one;
            at = one->stop;
            rows++;
        }
        forget_ahead(ahead, done, count);
    }
    Py_XDECREF(route);
    close_columns(&open);
    forget_tail(&tail);
    if (more < 0) Py_CLEAR(to.bytes);
    else if (end_answers(&to, replies) < 0) more = -1;
    return result(more < 0, at, rows);
}

/* -- QoS 2: staged at PUBLISH -- */

PyDoc_STRVAR(stage_records_doc,
"stage_records(data, offset, version_5, max_packet, max_payload, cache, missing, inbound, ids, heads, bodies, replies) -> (int,\n"
"int)\n\n"
"Append publications of QoS 2 to the records that a session stages; returns as take() does.");

/* 1: one more is staged; 0: its identifier is in use; -1: an error is set. */
static int stage_one(const publication *one, PyObject *key, PyObject *first, PyObject *head, PyObject *inbound,
                     PyObject *ids, PyObject *heads, PyObject *bodies)
{
    PyObject *number = PyLong_FromLong((long)one->packet_id), *kept = NULL, *body = NULL;
    int done = -1;
    if (number == NULL) return -1;
    if ((body = PyBytes_FromStringAndSize(NULL, STAGED_ID + one->length)) != NULL &&
             (kept = PyTuple_New(3)) != NULL) {
        char *at = PyBytes_AS_STRING(body);
        at[0] = (char)one->packet_id;
        at[1] = (char)(one->packet_id >> 8);
        memcpy(at + STAGED_ID, one->payload, (size_t)one->length);
        PyTuple_SET_ITEM(kept, 0, Py_NewRef(key));
        PyTuple_SET_ITEM(kept, 1, Py_NewRef(body));
        PyTuple_SET_ITEM(kept, 2, Py_NewRef(first));
        PyObject_GC_UnTrack(kept); /* bytes and a number: in no cycle */
        PyObject *known = PyDict_SetDefault(inbound, number, kept);
        if (known != NULL && known != kept) done = 0; /* sent before */
        else if (known == kept && PyList_Append(ids, number) == 0 && PyList_Append(heads, head) == 0 &&
                 PyList_Append(bodies, body) == 0)
            done = 1;
    }
    Py_DECREF(number);
    Py_XDECREF(kept);
    Py_XDECREF(body);
    return done;
}

static PyObject *stage_records(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    reading from;
    Py_ssize_t at, rows = 0;
    if (nargs != 12) {
        PyErr_SetString(PyExc_TypeError, "stage_records() takes 12 arguments");
        return NULL;
    }
    PyObject *cache = args[5], *missing = args[6], *inbound = args[7];
    int lists = 1;
    for (int i = 8; i < 12; i++) lists = lists && PyList_CheckExact(args[i]);
    if (!PyDict_Check(cache) || !PyDict_CheckExact(inbound) || !lists) {
        PyErr_SetString(PyExc_TypeError, "stage_records(bytes, int, bool, int, int, dict, callable, dict, list, list, list, list)");
        return NULL;
    }
    if (reading_of(args, 0x34, &from, &at) < 0) return NULL;
    publication one, before = {NULL, NULL, 0, 0, 0, 0};
    PyObject *first = PyLong_FromLong(0x34), *key = NULL, *head = NULL, *route = NULL;
    answers to = {NULL, 0};
    int more = first != NULL ? 1 : -1;
    while (more == 1 && read_publication(&from, at, &one)) {
        if (to.bytes == NULL && begin_answers(&to, (from.end - at) / 6 + 1) < 0) more = -1;
        else if (before.topic == NULL || !same_topic(&one, &before)) {
            if ((more = look_up(cache, missing, 0x34, one.topic, one.topic_length, path_staged, &route)) == 1) {
                Py_XSETREF(head, Py_XNewRef(field(route, AT_STAGED)));
                if (head == NULL) more = -1;
                else if (!PyBytes_CheckExact(head) || PyBytes_GET_SIZE(head) == 0) more = 0; /* to be made */
                else {
                    Py_XSETREF(key, PyBytes_FromStringAndSize((const char *)one.topic, one.topic_length));
                    if (key == NULL) more = -1;
                }
            }
        }
        if (more == 1) more = stage_one(&one, key, first, head, inbound, args[8], args[9], args[10]);
        if (more != 1) break;
        answer(&to, 0x50, one.packet_id);
        before = one;
        at = one.stop;
        rows++;
    }
    Py_XDECREF(first);
    Py_XDECREF(route);
    Py_XDECREF(key);
    Py_XDECREF(head);
    if (more < 0) Py_CLEAR(to.bytes);
    else if (end_answers(&to, args[11]) < 0) more = -1;
    return result(more < 0, at, rows);
}

/* -- QoS 2: released at PUBREL -- */

/* The staged record of a packet identifier. */
typedef struct {
    PyObject *number, *kept, *token; /* references are held */
} staged;

static void forget_staged(staged *one)
{
    Py_CLEAR(one->number);
    Py_CLEAR(one->kept);
    Py_CLEAR(one->token);
}

/* 1: a publication that is stored as a record; 0: something else; -1: an error is set. */
static int find_staged(unsigned packet_id, PyObject *inbound, PyObject *tokens, staged *one)
{
    if ((one->number = PyLong_FromLong((long)packet_id)) == NULL) return -1;
    PyObject *kept = PyDict_GetItemWithError(inbound, one->number);
    if (kept == NULL) return PyErr_Occurred() ? -1 : 0;
    if (!PyTuple_CheckExact(kept) || PyTuple_GET_SIZE(kept) != 3 || !PyBytes_CheckExact(PyTuple_GET_ITEM(kept, 0)) ||
        !PyBytes_CheckExact(PyTuple_GET_ITEM(kept, 1)) || PyBytes_GET_SIZE(PyTuple_GET_ITEM(kept, 1)) < STAGED_ID ||
        !PyLong_CheckExact(PyTuple_GET_ITEM(kept, 2)))
        return 0;
    PyObject *token = PyDict_GetItemWithError(tokens, one->number);
    if (token == NULL) return PyErr_Occurred() ? -1 : 0;
    one->kept = Py_NewRef(kept);
    one->token = Py_NewRef(token);
    return 1;
}

/* Consecutive rows of one address that release staged messages: noted once, as (first row, session, ids, tokens). */
typedef struct {
    PyObject *ids, *tokens; /* lists, to which references are held; NULL: none is open */
} released_rows;

static int begin_released(released_rows *released, const columns *open, PyObject *session)
{
    PyObject *rows;
    if ((released->ids = PyList_New(0)) == NULL || (released->tokens = PyList_New(0)) == NULL ||
        (rows = Py_BuildValue("nOOO", PyList_GET_SIZE(open->heads), session, released->ids, released->tokens)) == NULL)
        return -1;
    return append(open->released, rows);
}

/* Add their tokens to those of all messages that are taken. */
static int end_released(released_rows *released, PyObject *taken)
{
    Py_ssize_t end = PyList_GET_SIZE(taken);
    int failed = released->tokens != NULL && PyList_SetSlice(taken, end, end, released->tokens) < 0;
    Py_CLEAR(released->ids);
    Py_CLEAR(released->tokens);
    return failed ? -1 : 0;
}

static int is_like(const staged *one, const staged *before)
{
    if (before->kept == NULL) return 0;
    PyObject *topic = PyTuple_GET_ITEM(one->kept, 0), *last = PyTuple_GET_ITEM(before->kept, 0);
    PyObject *first = PyTuple_GET_ITEM(one->kept, 2), *last_first = PyTuple_GET_ITEM(before->kept, 2);
    if (first != last_first && PyLong_AsLong(first) != PyLong_AsLong(last_first)) return 0;
    return last == topic || (PyBytes_GET_SIZE(last) == PyBytes_GET_SIZE(topic) &&
                             !memcmp(PyBytes_AS_STRING(last), PyBytes_AS_STRING(topic), (size_t)PyBytes_GET_SIZE(topic)));
}

/* Open the columns of its route. */
static int open_route(const staged *one, PyObject *caches, PyObject *prepared, PyObject **route, columns *open, tail_source *tail)
{
    long first = PyLong_AsLong(PyTuple_GET_ITEM(one->kept, 2));
    if (first == -1 && PyErr_Occurred()) return -1;
    PyObject *cache = PyTuple_GET_ITEM(caches, first & 7);
    if (!PyDict_Check(cache)) {
        PyErr_SetString(PyExc_TypeError, "caches are dicts");
        return -1;
    }
    PyObject *found = PyDict_GetItemWithError(cache, PyTuple_GET_ITEM(one->kept, 0));
    if (found == NULL) return PyErr_Occurred() ? -1 : 0;
    long path = fast_path_of(found);
    if (path != path_staged) return path == -1 && PyErr_Occurred() ? -1 : 0;
    PyObject *address = field(found, AT_ADDRESS), *tails = field(found, AT_TAILS);
    if (address == NULL || tails == NULL) return -1;
    Py_XSETREF(*route, Py_NewRef(found));
    int opened = open_columns(open, prepared, address);
    if (opened == 1 && !PyList_CheckExact(open->released)) {
        close_columns(open);
        return 0;
    }
    return opened == 1 && learn_tail(tail, tails) < 0 ? -1 : opened;
}

static int release_one(const staged *one, unsigned packet_id, PyObject *route, columns *open, tail_source *tail,
                       const released_rows *released)
{
    PyObject *kept = PyTuple_GET_ITEM(one->kept, 1), *head = field(route, AT_HEAD);
    if (head == NULL) return -1;
    PyObject *body = body_of(tail, packet_id, (const unsigned char *)PyBytes_AS_STRING(kept) + STAGED_ID,
                             PyBytes_GET_SIZE(kept) - STAGED_ID);
    if (append(open->bodies, body) < 0 || PyList_Append(open->heads, head) < 0) return -1;
    return PyList_Append(released->ids, one->number) < 0 || PyList_Append(released->tokens, one->token) < 0 ? -1 : 0;
}

PyDoc_STRVAR(release_records_doc,
"release_records(data, offset, caches, inbound, tokens, prepared, session, taken, replies) -> (int, int)\n\n"
"Append what PUBRELs release of staged records to the columns prepared; returns as take() does.");

static PyObject *release_records(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 9 || !PyBytes_CheckExact(args[0]) || !PyTuple_CheckExact(args[2]) || PyTuple_GET_SIZE(args[2]) != 8 ||
        !PyDict_CheckExact(args[3]) || !PyDict_CheckExact(args[4]) || !PyDict_CheckExact(args[5]) ||
        !PyList_CheckExact(args[7]) || !PyList_CheckExact(args[8])) {
        PyErr_SetString(PyExc_TypeError, "release_records(bytes, int, tuple of 8 dicts, dict, dict, dict, object, list, list)");
        return NULL;
    }
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t end = PyBytes_GET_SIZE(args[0]), at = PyLong_AsSsize_t(args[1]), rows = 0;
    if (at == -1 && PyErr_Occurred()) return NULL;
    if (at < 0) {
        PyErr_SetString(PyExc_TypeError, "an offset is not negative");
        return NULL;
    }
    PyObject *inbound = args[3], *tokens = args[4], *taken = args[7], *route = NULL;
    columns open = {NULL, NULL, NULL, NULL};
    tail_source tail = {NULL, NULL, 0};
    released_rows released = {NULL, NULL};
    answers to = {NULL, 0};
    staged one = {NULL, NULL, NULL}, before = one;
    int more = 1;
    for (; at + 4 <= end && data[at] == 0x62 && data[at + 1] == 2; at += 4, rows++) {
        unsigned packet_id = (unsigned)data[at + 2] << 8 | data[at + 3];
        if (to.bytes == NULL && begin_answers(&to, (end - at) / 4) < 0) more = -1;
        else more = find_staged(packet_id, inbound, tokens, &one);
        if (more == 1 && !is_like(&one, &before)) {
            more = end_released(&released, taken) < 0 ? -1 : open_route(&one, args[2], args[5], &route, &open, &tail);
            if (more == 1 && begin_released(&released, &open, args[6]) < 0) more = -1;
        }
        if (more == 1 && (release_one(&one, packet_id, route, &open, &tail, &released) < 0 ||
                          PyDict_DelItem(inbound, one.number) < 0 || PyDict_DelItem(tokens, one.number) < 0))
            more = -1;
        if (more != 1) break;
        answer(&to, 0x70, packet_id);
        forget_staged(&before);
        before = one;
        memset(&one, 0, sizeof one);
    }
    forget_staged(&one);
    forget_staged(&before);
    Py_XDECREF(route);
    close_columns(&open);
    forget_tail(&tail);
    if (end_released(&released, taken) < 0) more = -1;
    if (more < 0) Py_CLEAR(to.bytes);
    else if (end_answers(&to, args[8]) < 0) more = -1;
    return result(more < 0, at, rows);
}

/* -- QoS 2 in staged runs: staged as the messages they will be, and moved -- */

/* Whether `least` publications of one topic follow. */
static int have_one_topic(const reading *from, Py_ssize_t at, Py_ssize_t least)
{
    publication first, next;
    if (!read_publication(from, at, &first)) return 0;
    for (at = first.stop; --least > 0; at = next.stop)
        if (!read_publication(from, at, &next) || !same_topic(&first, &next)) return 0;
    return 1;
}

/* 1: one more in the run; 0: its identifier is in use; -1: an error is set. */
static int stage_in_run(const publication *one, tail_source *tail, PyObject *inbound, PyObject *run, PyObject *ids, PyObject *bodies)
{
    PyObject *number = PyLong_FromLong((long)one->packet_id);
    if (number == NULL) return -1;
    Py_ssize_t known = PyDict_GET_SIZE(inbound);
    int done = -1;
    if (PyDict_SetDefault(inbound, number, run) == NULL) done = -1;
    else if (PyDict_GET_SIZE(inbound) == known) done = 0;
    else if (append(bodies, body_of(tail, one->packet_id, one->payload, one->length)) == 0)
        done = PyList_Append(ids, number) < 0 ? -1 : 1;
    Py_DECREF(number);
    return done;
}

PyDoc_STRVAR(stage_run_doc,
"stage_run(data, offset, version_5, max_packet, max_payload, least, most, tails, inbound, run, ids, bodies, replies) -> (int,\n"
"int, int, int)\n\n"
"Stage at least `least` publications of QoS 2 and one topic: their identifiers in `inbound` lead to `run` from now on.\n"
"Returns as take() does, with the length of all bodies and that of the longest.");

static PyObject *stage_run(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    reading from;
    Py_ssize_t at, rows = 0, size = 0, longest = 0;
    if (nargs != 13 || !PyDict_CheckExact(args[8]) || !PyList_CheckExact(args[10]) || !PyList_CheckExact(args[11]) ||
        !PyList_CheckExact(args[12])) {
        PyErr_SetString(PyExc_TypeError,
                        "stage_run(bytes, int, bool, int, int, int, int, dict, dict, object, list, list, list)");
        return NULL;
    }
    if (reading_of(args, 0x34, &from, &at) < 0) return NULL;
    Py_ssize_t least = PyLong_AsSsize_t(args[5]), most = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred()) return NULL;
    if (!have_one_topic(&from, at, least)) return Py_BuildValue("nnnn", at, rows, size, longest);
    publication one, before = {NULL, NULL, 0, 0, 0, 0};
    tail_source tail = {NULL, NULL, 0};
    answers to = {NULL, 0};
    int more = learn_tail(&tail, args[7]) < 0 || begin_answers(&to, (from.end - at) / 6 + 1) < 0 ? -1 : 1;
    while (more == 1 && rows < most && read_publication(&from, at, &one)) {
        if (before.topic != NULL && !same_topic(&one, &before)) break;
        if ((more = stage_in_run(&one, &tail, args[8], args[9], args[10], args[11])) != 1) break;
        answer(&to, 0x50, one.packet_id);
        Py_ssize_t length = PyBytes_GET_SIZE(PyList_GET_ITEM(args[11], PyList_GET_SIZE(args[11]) - 1));
        size += length;
        if (length > longest) longest = length;
        before = one;
        at = one.stop;
        rows++;
    }
    forget_tail(&tail);
    if (more < 0) Py_CLEAR(to.bytes);
    else if (end_answers(&to, args[12]) < 0) more = -1;
    return more < 0 ? NULL : Py_BuildValue("nnnn", at, rows, size, longest);
}

/* Where in a run an identifier is; -1: nowhere, or an error is set. */
static Py_ssize_t position_of(PyObject *ids, long packet_id)
{
    Py_ssize_t count = PyList_GET_SIZE(ids);
    if (count == 0) return -1;
    long first = PyLong_AsLong(PyList_GET_ITEM(ids, 0)), guess = packet_id - first;
    if (guess >= 0 && guess < count && PyLong_AsLong(PyList_GET_ITEM(ids, guess)) == packet_id) return guess;
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++)
        if (PyLong_AsLong(PyList_GET_ITEM(ids, i)) == packet_id) return i;
    return -1;
}

PyDoc_STRVAR(release_run_doc,
"release_run(data, offset, inbound, run, ids, replies) -> (int, int, int)\n\n"
"Remove from `inbound` the identifiers of a staged run that PUBRELs release in its order. Returns as take() does, with the\n"
"position of the first in the run.");

static PyObject *release_run(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6 || !PyBytes_CheckExact(args[0]) || !PyDict_CheckExact(args[2]) || !PyList_CheckExact(args[4]) ||
        !PyList_CheckExact(args[5])) {
        PyErr_SetString(PyExc_TypeError, "release_run(bytes, int, dict, object, list, list)");
        return NULL;
    }
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t end = PyBytes_GET_SIZE(args[0]), at = PyLong_AsSsize_t(args[1]), rows = 0, first = 0;
    PyObject *inbound = args[2], *run = args[3], *ids = args[4];
    answers to = {NULL, 0};
    if (at < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "an offset is not negative");
        return NULL;
    }
    int more = 1;
    for (; at + 4 <= end && data[at] == 0x62 && data[at + 1] == 2; at += 4, rows++) {
        long packet_id = (long)data[at + 2] << 8 | data[at + 3];
        if (rows == 0 && (first = position_of(ids, packet_id)) < 0) break;
        if (first + rows >= PyList_GET_SIZE(ids)) break;
        PyObject *number = Py_NewRef(PyList_GET_ITEM(ids, first + rows));
        if (PyLong_AsLong(number) != packet_id || PyDict_GetItemWithError(inbound, number) != run) more = 0;
        else if (PyDict_DelItem(inbound, number) < 0) more = -1;
        else if (to.bytes == NULL && begin_answers(&to, (end - at) / 4) < 0) more = -1;
        Py_DECREF(number);
        if (more != 1) break;
        answer(&to, 0x70, (unsigned)packet_id);
    }
    if (PyErr_Occurred()) more = -1;
    if (more < 0) Py_CLEAR(to.bytes);
    else if (end_answers(&to, args[5]) < 0) more = -1;
    return more < 0 ? NULL : Py_BuildValue("nnn", at, rows, first < 0 ? 0 : first);
}

/* -- whole columns, for columns.py -- */

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

static int pair_run(PyObject *into, PyObject *ids, unsigned long long first)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ids); i++) {
        PyObject *token = PyLong_FromUnsignedLongLong(first + (unsigned long long)i);
        if (token == NULL) return -1;
        int failed = PyDict_SetItem(into, PyList_GET_ITEM(ids, i), token);
        Py_DECREF(token);
        if (failed < 0) return -1;
    }
    return 0;
}

PyDoc_STRVAR(pair_doc,
"pair(into, ids, tokens) -> None\n\n"
"into[id] = token for each of the ids; tokens is a sequence of as many.");

static PyObject *pair(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyDict_CheckExact(args[0]) || !PyList_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "pair(dict, list, sequence)");
        return NULL;
    }
    Py_ssize_t count = PySequence_Size(args[2]);
    if (count != PyList_GET_SIZE(args[1])) {
        if (count >= 0) PyErr_SetString(PyExc_ValueError, "as many tokens as ids");
        return NULL;
    }
    unsigned long long first;
    if (counts_up(args[2], &first)) {
        if (pair_run(args[0], args[1], first) < 0) return NULL;
        Py_RETURN_NONE;
    }
    PyObject *tokens = PySequence_Fast(args[2], "tokens are a sequence");
    if (tokens == NULL) return NULL;
    int failed = 0;
    for (Py_ssize_t i = 0; failed == 0 && i < PySequence_Fast_GET_SIZE(tokens) && i < PyList_GET_SIZE(args[1]); i++)
        failed = PyDict_SetItem(args[0], PyList_GET_ITEM(args[1], i), PySequence_Fast_GET_ITEM(tokens, i));
    Py_DECREF(tokens);
    if (failed < 0) return NULL;
    Py_RETURN_NONE;
}

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

PyDoc_STRVAR(topic_doc,
"topic(data, offset, max_packet) -> bytes | None\n\n"
"The topic of the PUBLISH at offset; None if that packet is incomplete or malformed up to there.");

static PyObject *topic(PyObject *Py_UNUSED(self), PyObject *args)
{
    PyObject *chunk;
    Py_ssize_t at, max_packet, start;
    if (!PyArg_ParseTuple(args, "Snn", &chunk, &at, &max_packet)) return NULL;
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(chunk);
    Py_ssize_t end = PyBytes_GET_SIZE(chunk), stop;
    if (at < 0 || at + 4 > end || (stop = frame(data, at, end, max_packet, &start)) == 0 || start + 2 > stop)
        Py_RETURN_NONE;
    Py_ssize_t length = (Py_ssize_t)data[start] << 8 | data[start + 1];
    if (start + 2 + length > stop) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)data + start + 2, length);
}

static PyMethodDef methods[] = {
    {"configure", configure, METH_VARARGS, configure_doc},
    {"length", length, METH_O, length_doc},
    {"topic", topic, METH_VARARGS, topic_doc},
    {"pair", (PyCFunction)(void (*)(void))pair, METH_FASTCALL, pair_doc},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {"stage_records", (PyCFunction)(void (*)(void))stage_records, METH_FASTCALL, stage_records_doc},
    {"release_records", (PyCFunction)(void (*)(void))release_records, METH_FASTCALL, release_records_doc},
    {"stage_run", (PyCFunction)(void (*)(void))stage_run, METH_FASTCALL, stage_run_doc},
    {"release_run", (PyCFunction)(void (*)(void))release_run, METH_FASTCALL, release_run_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.broker.publish._chunks", "The fast lane of chunks; fast.py calls it.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__chunks(void)
{
    if (check_sources() < 0) return NULL;
    if ((s_close = PyUnicode_InternFromString("close")) == NULL ||
        (s_width = PyUnicode_InternFromString("width")) == NULL ||
        (s_start = PyUnicode_InternFromString("start")) == NULL || (s_step = PyUnicode_InternFromString("step")) == NULL)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && add_topic_cache_type(made) < 0) Py_CLEAR(made);
    return made;
}
