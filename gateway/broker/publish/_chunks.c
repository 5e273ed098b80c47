/*
 * Runs of publications, from the bytes of a chunk to the columns of a unit of work.
 *
 * take() reads PUBLISH packets of QoS 0 or 1 that lie one after the other in a chunk, stage() and hold() those of QoS 2,
 * release() and let_go() their PUBRELs: as long as each has the first byte given (neither DUP nor RETAIN), no properties, a payload within the
 * limit, and a topic whose cached route leads straight to columns that are open. At anything else, a packet that is not
 * whole included, they stop: the caller opens the columns or goes on with Publishing.packets, which does the same and
 * everything else, and with which the tests compare them.
 *
 * Nothing is read beyond the chunk: every length is checked against its end before it is used.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <string.h>
#include <structmember.h>

enum { HOT = 1, STAGING = 2 }; /* as in gateway/broker/publish/route.py */
enum { STAGED_ID = 2 };         /* bytes of the packet identifier before the payload of what is staged */

/* Memory that is wanted soon, where the compiler knows how to say so; never an error, whatever the address. */
#if defined(__GNUC__)
#define prefetch(at) __builtin_prefetch(at)
#else
#define prefetch(at) ((void)(at))
#endif

#include "_topic_cache.h"
#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

/* -- routes: instances of one class with slots, read where they lie -- */

static PyTypeObject *route_type;
enum { AT_HOT, AT_SEEN, AT_CELL, AT_RUN, AT_HEAD, AT_TAILS, AT_STAGED, FIELDS };
static const char *const field_names[FIELDS] = {"hot", "seen", "cell", "run", "head", "tails", "staged_head"};
static Py_ssize_t field_offsets[FIELDS];

/* A borrowed reference; NULL, with an error, where there is nothing. */
static PyObject *field(PyObject *route, int which)
{
    PyObject *value = *(PyObject **)((char *)route + field_offsets[which]);
    if (value == NULL) PyErr_Format(PyExc_AttributeError, "a route without %s", field_names[which]);
    return value;
}

PyDoc_STRVAR(routes_doc, "routes(cls) -> None\n\nThe class of routes, whose slots are read from now on.");

static PyObject *routes(PyObject *Py_UNUSED(self), PyObject *type)
{
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "routes() takes a class");
        return NULL;
    }
    Py_ssize_t found[FIELDS];
    for (int i = 0; i < FIELDS; i++) {
        PyObject *descriptor = PyObject_GetAttrString(type, field_names[i]);
        if (descriptor == NULL) return NULL;
        int is_slot = Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
        PyMemberDef *member = is_slot ? ((PyMemberDescrObject *)descriptor)->d_member : NULL;
        found[i] = member != NULL && member->type == T_OBJECT_EX ? member->offset : 0;
        Py_DECREF(descriptor); /* the class holds it */
        if (found[i] == 0) {
            PyErr_Format(PyExc_TypeError, "%s is not a slot of the class", field_names[i]);
            return NULL;
        }
    }
    memcpy(field_offsets, found, sizeof found);
    Py_INCREF(type);
    Py_XSETREF(route_type, (PyTypeObject *)type);
    Py_RETURN_NONE;
}

/* How hot a route is now; 0: not at all, or subscriptions have changed since; -1: an error is set. */
static long warmth(PyObject *route)
{
    if (route_type == NULL || !Py_IS_TYPE(route, route_type)) {
        PyErr_SetString(PyExc_TypeError, "caches hold routes");
        return -1;
    }
    PyObject *hot = field(route, AT_HOT), *seen = field(route, AT_SEEN), *cell = field(route, AT_CELL);
    if (hot == NULL || seen == NULL || cell == NULL) return -1;
    if (!PyLong_CheckExact(hot) || !PyLong_CheckExact(seen) || !PyList_CheckExact(cell) || PyList_GET_SIZE(cell) != 1) {
        PyErr_SetString(PyExc_TypeError, "hot and seen are numbers, and a route's cell is a list of one");
        return -1;
    }
    if (seen != PyList_GET_ITEM(cell, 0)) {
        int same = PyObject_RichCompareBool(seen, PyList_GET_ITEM(cell, 0), Py_EQ);
        if (same != 1) return same;
    }
    return PyLong_AsLong(hot);
}

/* A route that was found, whose reference is handed over: as look_up() returns it. */
static int use(PyObject *found, long wanted, PyObject **route)
{
    long hot = warmth(found);
    if (hot != wanted) {
        Py_DECREF(found);
        return hot == -1 && PyErr_Occurred() ? -1 : 0;
    }
    Py_XSETREF(*route, found);
    return 1;
}

/*
 * The route of a topic: the one in the cache, or what `missing(first, topic)` answers. 1: here it is (a new reference);
 * 0: it is not of that warmth; -1: an error is set.
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
    return found == NULL ? -1 : use(found, wanted, route);
}

/* -- columns -- */

typedef struct {
    PyObject *run, *heads, *bodies, *released; /* references are held; released: a list, or Py_None */
} columns;

static void close_columns(columns *open)
{
    Py_CLEAR(open->run);
    Py_CLEAR(open->heads);
    Py_CLEAR(open->bodies);
    Py_CLEAR(open->released);
}

/* 1: the columns of this very run are open now; 0: they are not among those prepared; -1: an error is set. */
static int open_columns(columns *open, PyObject *prepared, PyObject *run)
{
    if (open->run == run) return 1;
    close_columns(open);
    PyObject *entry = PyDict_GetItemWithError(prepared, run);
    if (entry == NULL) return PyErr_Occurred() ? -1 : 0;
    if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != 4 || !PyList_CheckExact(PyTuple_GET_ITEM(entry, 1)) ||
        !PyList_CheckExact(PyTuple_GET_ITEM(entry, 2))) {
        PyErr_SetString(PyExc_TypeError, "columns are (run, heads, bodies, released)");
        return -1;
    }
    if (PyTuple_GET_ITEM(entry, 0) != run) return 0; /* an equal run of another rule: to be aimed */
    open->run = Py_NewRef(run);
    open->heads = Py_NewRef(PyTuple_GET_ITEM(entry, 1));
    open->bodies = Py_NewRef(PyTuple_GET_ITEM(entry, 2));
    open->released = Py_NewRef(PyTuple_GET_ITEM(entry, 3));
    return 1;
}

/* -- tails: what stands between head and payload, with the packet identifier -- */

static PyObject *s_close, *s_width, *s_start, *s_step;

typedef struct {
    PyObject *tails;  /* a reference is held */
    PyObject *close;  /* likewise; NULL: to be asked for by number */
    Py_ssize_t width; /* 0: there is none */
} tail;

static void forget_tail(tail *of)
{
    Py_CLEAR(of->tails);
    Py_CLEAR(of->close);
}

static int learn_tail(tail *of, PyObject *tails)
{
    if (of->tails == tails) return 0;
    forget_tail(of);
    if (!PyDict_Check(tails)) {
        PyErr_SetString(PyExc_TypeError, "a route's tails are a dict");
        return -1;
    }
    PyObject *close = PyObject_GetAttr(tails, s_close), *width = close ? PyObject_GetAttr(tails, s_width) : NULL;
    Py_ssize_t wide = width != NULL ? PyLong_AsSsize_t(width) : -1;
    if (wide >= 0 && PyBytes_CheckExact(close)) {
        of->width = wide;
        of->close = Py_NewRef(close);
    }
    Py_XDECREF(close);
    Py_XDECREF(width);
    PyErr_Clear(); /* any dict will do */
    of->tails = Py_NewRef(tails);
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
static PyObject *body_of(tail *of, unsigned packet_id, const unsigned char *payload, Py_ssize_t length)
{
    char digits[8];
    int count = 0;
    PyObject *found = NULL;
    Py_ssize_t width = of->width;
    if (of->close != NULL && width > 0) {
        unsigned rest = packet_id;
        do digits[7 - count++] = (char)('0' + rest % 10);
        while ((rest /= 10) != 0);
    }
    if (of->close == NULL || count + PyBytes_GET_SIZE(of->close) > width) {
        if ((found = tail_of(of->tails, packet_id)) == NULL) return NULL;
        width = PyBytes_GET_SIZE(found);
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, width + length);
    if (body != NULL) {
        char *at = PyBytes_AS_STRING(body);
        if (found != NULL) memcpy(at, PyBytes_AS_STRING(found), (size_t)width);
        else if (width > 0) {
            Py_ssize_t closing = PyBytes_GET_SIZE(of->close);
            memcpy(at, digits + 8 - count, (size_t)count);
            memcpy(at + count, PyBytes_AS_STRING(of->close), (size_t)closing);
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
 * Where the frame at `at` ends, and in *start where its body begins; 0: not whole, longer than allowed, or malformed.
 * At most four bytes of remaining length, the shortest form only: the rest is for those who word the errors.
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

/* Whether a plain publication lies at `at`. */
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

/* -- acknowledgements: one object for a run of them -- */

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
 * What comes next, read and looked up together: a client may have thousands of topics, and their routes and heads then
 * lie in memory that takes a while to answer. It is asked for all of a stretch at once.
 */
enum { STRETCH = 16 };

typedef struct {
    publication one;
    PyObject *route; /* a reference is held; NULL: it has the topic of the one before, or is not in the cache */
    uint32_t hash;
    int is_other; /* whether the one before has another topic */
} upcoming;

static void forget_stretch(upcoming *stretch, int begin, int end)
{
    for (int i = begin; i < end; i++) Py_CLEAR(stretch[i].route);
}

/* Packets, and the memory of what is known of their topics. */
static int read_stretch(const reading *from, Py_ssize_t at, const publication *before, const near_dict *near,
                        upcoming *stretch)
{
    int count = 0;
    for (; count < STRETCH && read_publication(from, at, &stretch[count].one); count++) {
        upcoming *next = &stretch[count];
        at = next->one.stop;
        next->route = NULL;
        if (near != NULL) next->hash = near_hash(next->one.topic, next->one.topic_length);
        int is_like = before->topic != NULL && (near == NULL || count == 0 || next->hash == stretch[count - 1].hash);
        next->is_other = !is_like || !same_topic(&next->one, before);
        before = &next->one;
        if (near != NULL && next->is_other) prefetch(near_place(near, next->hash, 0));
    }
    for (int i = 0; near != NULL && i < count; i++)
        if (stretch[i].is_other) near_ask(near, stretch[i].hash);
    return count;
}

static void ask_for_route(PyObject *route, const void *head)
{
    prefetch(route);
    prefetch((const char *)route + field_offsets[AT_TAILS]); /* the last of what take() reads */
    prefetch(head);
}

/* The route of a topic in the cache, if there is one: borrowed. NULL with an error set: there is no memory. */
static PyObject *route_in(PyObject *cache, near_dict *near, const upcoming *next)
{
    const publication *one = &next->one;
    neighbour *found = near != NULL ? near_find(near, next->hash, one->topic, one->topic_length) : NULL;
    if (found != NULL) {
        ask_for_route(found->route, found->head);
        return found->route;
    }
    PyObject *key = PyBytes_FromStringAndSize((const char *)one->topic, one->topic_length);
    PyObject *route = key != NULL ? PyDict_GetItemWithError(cache, key) : NULL;
    Py_XDECREF(key);
    if (route == NULL || route_type == NULL || !Py_IS_TYPE(route, route_type)) return route;
    const void *head = *(const void **)((char *)route + field_offsets[AT_HEAD]);
    ask_for_route(route, head);
    if (near != NULL) near_keep(near, next->hash, one->topic, one->topic_length, route, head);
    return route;
}

/* How many there are; -1: an error is set. */
static int look_ahead(const reading *from, Py_ssize_t at, const publication *before, PyObject *cache, upcoming *stretch)
{
    near_dict *near = as_near(cache);
    if (near != NULL && !near_room(near)) near = NULL;
    PyObject *found[STRETCH];
    int count = read_stretch(from, at, before, near, stretch);
    for (int i = 0; i < count; i++)
        if ((found[i] = stretch[i].is_other ? route_in(cache, near, &stretch[i]) : NULL) == NULL && PyErr_Occurred())
            return -1;
    for (int i = 0; i < count; i++) stretch[i].route = Py_XNewRef(found[i]); /* only now: it touches them */
    return count;
}

/* 1: one more row; 0: it is not for these columns; -1: an error is set. */
static int take_one(const reading *from, upcoming *next, PyObject *cache, PyObject *missing, PyObject *prepared,
                    PyObject **route, columns *open, tail *of)
{
    const publication *one = &next->one;
    if (next->is_other) {
        PyObject *known = next->route;
        next->route = NULL;
        int found = known != NULL ? use(known, HOT, route)
                                  : look_up(cache, missing, from->first, one->topic, one->topic_length, HOT, route);
        if (found != 1) return found;
        PyObject *run = field(*route, AT_RUN), *tails = field(*route, AT_TAILS);
        if (run == NULL || tails == NULL) return -1;
        if ((found = open_columns(open, prepared, run)) != 1) return found;
        if (learn_tail(of, tails) < 0) return -1;
    }
    PyObject *head = field(*route, AT_HEAD);
    if (head == NULL) return -1;
    if (append(open->bodies, body_of(of, one->packet_id, one->payload, one->length)) < 0) return -1;
    return PyList_Append(open->heads, head) < 0 ? -1 : 1;
}

PyDoc_STRVAR(take_doc,
"take(data, offset, version_5, max_packet, max_payload, first, cache, missing, prepared, replies) -> (int, int)\n\n"
"Append a run of publications of QoS 0 or 1 to the columns prepared for their runs; returns the offset of the first\n"
"packet that is not one, and how many there were. Topics that are not in the cache are asked for: missing(first, topic).");

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
    upcoming stretch[STRETCH];
    PyObject *route = NULL;
    columns open = {NULL, NULL, NULL, NULL};
    tail of = {NULL, NULL, 0};
    answers to = {NULL, 0};
    int more = 1, count, done = STRETCH;
    while (more == 1 && done == STRETCH && (count = look_ahead(&from, at, &before, cache, stretch)) != 0) {
        more = count < 0 || (to.bytes == NULL && begin_answers(&to, (from.end - at) / 6 + 1) < 0) ? -1 : 1;
        for (done = 0; more == 1 && done < count; done++) {
            const publication *one = &stretch[done].one;
            more = take_one(&from, &stretch[done], cache, missing, prepared, &route, &open, &of);
            if (more != 1) break;
            if (one->packet_id) answer(&to, 0x40, one->packet_id);
            before = *one;
            at = one->stop;
            rows++;
        }
        forget_stretch(stretch, done, count);
    }
    Py_XDECREF(route);
    close_columns(&open);
    forget_tail(&of);
    if (more < 0) Py_CLEAR(to.bytes);
    else if (end_answers(&to, replies) < 0) more = -1;
    return result(more < 0, at, rows);
}

/* -- QoS 2: staged at PUBLISH -- */

PyDoc_STRVAR(stage_doc,
"stage(data, offset, version_5, max_packet, max_payload, cache, missing, inbound, ids, heads, bodies, replies) -> (int,\n"
"int)\n\n"
"Append a run of publications of QoS 2 to what a session stages; returns as take() does.");

/* 1: one more is staged; 0: it is not for here; -1: an error is set. */
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
        if (known != NULL && known != kept) done = 0; /* sent before: not for here */
        else if (known == kept && PyList_Append(ids, number) == 0 && PyList_Append(heads, head) == 0 &&
                 PyList_Append(bodies, body) == 0)
            done = 1;
    }
    Py_DECREF(number);
    Py_XDECREF(kept);
    Py_XDECREF(body);
    return done;
}

static PyObject *stage(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    reading from;
    Py_ssize_t at, rows = 0;
    if (nargs != 12) {
        PyErr_SetString(PyExc_TypeError, "stage() takes 12 arguments");
        return NULL;
    }
    PyObject *cache = args[5], *missing = args[6], *inbound = args[7];
    int lists = 1;
    for (int i = 8; i < 12; i++) lists = lists && PyList_CheckExact(args[i]);
    if (!PyDict_Check(cache) || !PyDict_CheckExact(inbound) || !lists) {
        PyErr_SetString(PyExc_TypeError, "stage(bytes, int, bool, int, int, dict, callable, dict, list, list, list, list)");
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
            if ((more = look_up(cache, missing, 0x34, one.topic, one.topic_length, STAGING, &route)) == 1) {
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

/* What a packet identifier stands for. */
typedef struct {
    PyObject *number, *kept, *token; /* references are held */
} staged;

static void forget_staged(staged *one)
{
    Py_CLEAR(one->number);
    Py_CLEAR(one->kept);
    Py_CLEAR(one->token);
}

/* 1: a plain publication that is stored; 0: something else; -1: an error is set. */
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

/* Neighbours of one destination: what is known of them is kept once, in (first row, session, ids, tokens). */
typedef struct {
    PyObject *ids, *tokens; /* lists, to which references are held; NULL: none is open */
} stretch;

static int begin_stretch(stretch *of, const columns *open, PyObject *session)
{
    PyObject *known;
    if ((of->ids = PyList_New(0)) == NULL || (of->tokens = PyList_New(0)) == NULL ||
        (known = Py_BuildValue("nOOO", PyList_GET_SIZE(open->heads), session, of->ids, of->tokens)) == NULL)
        return -1;
    return append(open->released, known);
}

/* Its tokens go with those of the others that are taken. */
static int end_stretch(stretch *of, PyObject *taken)
{
    Py_ssize_t end = PyList_GET_SIZE(taken);
    int failed = of->tokens != NULL && PyList_SetSlice(taken, end, end, of->tokens) < 0;
    Py_CLEAR(of->ids);
    Py_CLEAR(of->tokens);
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

/* Make the columns of its route the open ones. */
static int aim(const staged *one, PyObject *caches, PyObject *prepared, PyObject **route, columns *open, tail *of)
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
    long hot = warmth(found);
    if (hot != STAGING) return hot == -1 && PyErr_Occurred() ? -1 : 0;
    PyObject *run = field(found, AT_RUN), *tails = field(found, AT_TAILS);
    if (run == NULL || tails == NULL) return -1;
    Py_XSETREF(*route, Py_NewRef(found));
    int opened = open_columns(open, prepared, run);
    if (opened == 1 && !PyList_CheckExact(open->released)) {
        close_columns(open);
        return 0;
    }
    return opened == 1 && learn_tail(of, tails) < 0 ? -1 : opened;
}

static int release_one(const staged *one, unsigned packet_id, PyObject *route, columns *open, tail *of,
                       const stretch *with)
{
    PyObject *kept = PyTuple_GET_ITEM(one->kept, 1), *head = field(route, AT_HEAD);
    if (head == NULL) return -1;
    PyObject *body = body_of(of, packet_id, (const unsigned char *)PyBytes_AS_STRING(kept) + STAGED_ID,
                             PyBytes_GET_SIZE(kept) - STAGED_ID);
    if (append(open->bodies, body) < 0 || PyList_Append(open->heads, head) < 0) return -1;
    return PyList_Append(with->ids, one->number) < 0 || PyList_Append(with->tokens, one->token) < 0 ? -1 : 0;
}

PyDoc_STRVAR(release_doc,
"release(data, offset, caches, inbound, tokens, prepared, session, taken, replies) -> (int, int)\n\n"
"Append what a run of PUBRELs releases to the columns prepared; returns as take() does.");

static PyObject *release(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 9 || !PyBytes_CheckExact(args[0]) || !PyTuple_CheckExact(args[2]) || PyTuple_GET_SIZE(args[2]) != 8 ||
        !PyDict_CheckExact(args[3]) || !PyDict_CheckExact(args[4]) || !PyDict_CheckExact(args[5]) ||
        !PyList_CheckExact(args[7]) || !PyList_CheckExact(args[8])) {
        PyErr_SetString(PyExc_TypeError, "release(bytes, int, tuple of 8 dicts, dict, dict, dict, object, list, list)");
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
    tail of = {NULL, NULL, 0};
    stretch with = {NULL, NULL};
    answers to = {NULL, 0};
    staged one = {NULL, NULL, NULL}, before = one;
    int more = 1;
    for (; at + 4 <= end && data[at] == 0x62 && data[at + 1] == 2; at += 4, rows++) {
        unsigned packet_id = (unsigned)data[at + 2] << 8 | data[at + 3];
        if (to.bytes == NULL && begin_answers(&to, (end - at) / 4) < 0) more = -1;
        else more = find_staged(packet_id, inbound, tokens, &one);
        if (more == 1 && !is_like(&one, &before)) {
            more = end_stretch(&with, taken) < 0 ? -1 : aim(&one, args[2], args[5], &route, &open, &of);
            if (more == 1 && begin_stretch(&with, &open, args[6]) < 0) more = -1;
        }
        if (more == 1 && (release_one(&one, packet_id, route, &open, &of, &with) < 0 ||
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
    forget_tail(&of);
    if (end_stretch(&with, taken) < 0) more = -1;
    if (more < 0) Py_CLEAR(to.bytes);
    else if (end_answers(&to, args[8]) < 0) more = -1;
    return result(more < 0, at, rows);
}

/* -- QoS 2 in runs: staged as what they will be, and moved -- */

/* Whether `least` publications of one topic follow. */
static int are_alike(const reading *from, Py_ssize_t at, Py_ssize_t least)
{
    publication first, next;
    if (!read_publication(from, at, &first)) return 0;
    for (at = first.stop; --least > 0; at = next.stop)
        if (!read_publication(from, at, &next) || !same_topic(&first, &next)) return 0;
    return 1;
}

/* 1: one more of a run; 0: its identifier is in use; -1: an error is set. */
static int hold_one(const publication *one, tail *of, PyObject *inbound, PyObject *held, PyObject *ids, PyObject *bodies)
{
    PyObject *number = PyLong_FromLong((long)one->packet_id);
    if (number == NULL) return -1;
    Py_ssize_t known = PyDict_GET_SIZE(inbound);
    int done = -1;
    if (PyDict_SetDefault(inbound, number, held) == NULL) done = -1;
    else if (PyDict_GET_SIZE(inbound) == known) done = 0;
    else if (append(bodies, body_of(of, one->packet_id, one->payload, one->length)) == 0)
        done = PyList_Append(ids, number) < 0 ? -1 : 1;
    Py_DECREF(number);
    return done;
}

PyDoc_STRVAR(hold_doc,
"hold(data, offset, version_5, max_packet, max_payload, least, most, tails, inbound, held, ids, bodies, replies) -> (int,\n"
"int, int, int)\n\n"
"Take a run of at least `least` publications of QoS 2 and one topic: their identifiers stand for `held` from now on.\n"
"Returns as take() does, with the length of all bodies and that of the longest.");

static PyObject *hold(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    reading from;
    Py_ssize_t at, rows = 0, size = 0, longest = 0;
    if (nargs != 13 || !PyDict_CheckExact(args[8]) || !PyList_CheckExact(args[10]) || !PyList_CheckExact(args[11]) ||
        !PyList_CheckExact(args[12])) {
        PyErr_SetString(PyExc_TypeError,
                        "hold(bytes, int, bool, int, int, int, int, dict, dict, object, list, list, list)");
        return NULL;
    }
    if (reading_of(args, 0x34, &from, &at) < 0) return NULL;
    Py_ssize_t least = PyLong_AsSsize_t(args[5]), most = PyLong_AsSsize_t(args[6]);
    if (PyErr_Occurred()) return NULL;
    if (!are_alike(&from, at, least)) return Py_BuildValue("nnnn", at, rows, size, longest);
    publication one, before = {NULL, NULL, 0, 0, 0, 0};
    tail of = {NULL, NULL, 0};
    answers to = {NULL, 0};
    int more = learn_tail(&of, args[7]) < 0 || begin_answers(&to, (from.end - at) / 6 + 1) < 0 ? -1 : 1;
    while (more == 1 && rows < most && read_publication(&from, at, &one)) {
        if (before.topic != NULL && !same_topic(&one, &before)) break;
        if ((more = hold_one(&one, &of, args[8], args[9], args[10], args[11])) != 1) break;
        answer(&to, 0x50, one.packet_id);
        Py_ssize_t length = PyBytes_GET_SIZE(PyList_GET_ITEM(args[11], PyList_GET_SIZE(args[11]) - 1));
        size += length;
        if (length > longest) longest = length;
        before = one;
        at = one.stop;
        rows++;
    }
    forget_tail(&of);
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

PyDoc_STRVAR(let_go_doc,
"let_go(data, offset, inbound, held, ids, replies) -> (int, int, int)\n\n"
"Follow a run of PUBRELs through the identifiers of `held`, in their order: they stand for nothing from now on. Returns\n"
"as take() does, with the position of the first.");

static PyObject *let_go(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6 || !PyBytes_CheckExact(args[0]) || !PyDict_CheckExact(args[2]) || !PyList_CheckExact(args[4]) ||
        !PyList_CheckExact(args[5])) {
        PyErr_SetString(PyExc_TypeError, "let_go(bytes, int, dict, object, list, list)");
        return NULL;
    }
    const unsigned char *data = (const unsigned char *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t end = PyBytes_GET_SIZE(args[0]), at = PyLong_AsSsize_t(args[1]), rows = 0, first = 0;
    PyObject *inbound = args[2], *held = args[3], *ids = args[4];
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
        if (PyLong_AsLong(number) != packet_id || PyDict_GetItemWithError(inbound, number) != held) more = 0;
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

/* -- what is durable now -- */

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
"The topic of the PUBLISH at offset; None if that packet is not whole or not well-formed so far.");

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
    {"routes", routes, METH_O, routes_doc},
    {"length", length, METH_O, length_doc},
    {"topic", topic, METH_VARARGS, topic_doc},
    {"pair", (PyCFunction)(void (*)(void))pair, METH_FASTCALL, pair_doc},
    {"take", (PyCFunction)(void (*)(void))take, METH_FASTCALL, take_doc},
    {"stage", (PyCFunction)(void (*)(void))stage, METH_FASTCALL, stage_doc},
    {"release", (PyCFunction)(void (*)(void))release, METH_FASTCALL, release_doc},
    {"hold", (PyCFunction)(void (*)(void))hold, METH_FASTCALL, hold_doc},
    {"let_go", (PyCFunction)(void (*)(void))let_go, METH_FASTCALL, let_go_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.broker.publish._chunks", "Runs of publications; see the source.", -1, methods,
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
    if (made != NULL && near_add_type(made) < 0) Py_CLEAR(made);
    return made;
}
