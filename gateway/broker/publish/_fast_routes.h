/*
 * The routes of topics: from the cache of a client, or asked for.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

/* Fetch memory that is read soon; never an error, whatever the address. Without GCC or clang: nothing. */
#if defined(__GNUC__)
#define prefetch(at) __builtin_prefetch(at)
#else
#define prefetch(at) ((void)(at))
#endif

#include "_topic_cache.h"

static PyObject *s_route, *s_variant;

/* Ask for the route of a topic. A new reference, perhaps None; NULL: an error is set. */
static PyObject *ask_for_route(const taking *of, unsigned first, PyObject *topic)
{
    PyObject *number = PyLong_FromLong((long)first);
    if (number == NULL) return NULL;
    PyObject *found = PyObject_CallMethodObjArgs(of->turn->lane, s_route, of->connection, number, topic, NULL);
    Py_DECREF(number);
    return found;
}

/*
 * The route of a topic as it stands in the cache, made of the shared one or asked for if it is not there or not up to date,
 * and its path: a new reference. NULL: there is none, or an error is set.
 */
static PyObject *route_of(const taking *of, PyObject *cache, unsigned first, PyObject *topic, long *path)
{
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(cache, topic));
    if (found == NULL && PyErr_Occurred()) return NULL;
    if (found == NULL && (found = new_route_of(of, cache, first, topic)) == NULL && PyErr_Occurred()) return NULL;
    *path = found != NULL ? fast_path_of(found) : STALE;
    if (*path == STALE) {
        Py_XDECREF(found);
        found = ask_for_route(of, first, topic);
        if (found == NULL) return NULL;
        *path = found == Py_None ? 0 : fast_path_of(found);
    }
    if (*path <= 0) {
        Py_DECREF(found);
        return NULL;
    }
    return found;
}

/* The routes of a client for these QoS and RETAIN bits: borrowed. */
static PyObject *cache_of(const taking *of, unsigned first)
{
    PyObject *caches = field(of->connection, CACHES);
    if (caches == NULL) return NULL;
    PyObject *cache = PyTuple_CheckExact(caches) && PyTuple_GET_SIZE(caches) == 8 ? PyTuple_GET_ITEM(caches, first & 7) : NULL;
    if (cache == NULL || !PyDict_Check(cache)) {
        PyErr_SetString(PyExc_TypeError, "a connection's caches are 8 dicts");
        return NULL;
    }
    return cache;
}

/* The same, as a TopicCache if there are many. */
static PyObject *quick_cache_of(const taking *of, unsigned first)
{
    PyObject *cache = cache_of(of, first);
    if (cache == NULL || !PyDict_CheckExact(cache) || PyDict_GET_SIZE(cache) < many) return cache;
    PyObject *quick = PyObject_CallOneArg((PyObject *)&topic_cache_type, cache), *caches = PyTuple_New(8);
    if (quick == NULL || caches == NULL) {
        Py_XDECREF(quick);
        Py_XDECREF(caches);
        return NULL;
    }
    for (int i = 0; i < 8; i++)
        PyTuple_SET_ITEM(caches, i, i == (int)(first & 7) ? quick : Py_NewRef(PyTuple_GET_ITEM(*place(of->connection, CACHES), i)));
    Py_SETREF(*place(of->connection, CACHES), caches);
    return quick;
}

/* Whether a route reads a user property: those with others have a route of their own. */
static int is_read(PyObject *reads, const user_property *user)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(reads); i++) {
        PyObject *name = PyTuple_GET_ITEM(reads, i);
        if (PyBytes_CheckExact(name) && PyBytes_GET_SIZE(name) == user->name_length && !memcmp(PyBytes_AS_STRING(name), user->name, (size_t)user->name_length))
            return 1;
    }
    return 0;
}

/* The properties that make a route another one, as they came: how many bytes; -1: too many. */
static Py_ssize_t deciding(PyObject *reads, const given *said, unsigned char *to)
{
    Py_ssize_t length = said->rest_length;
    if (length > 0) memcpy(to, said->rest, (size_t)length);
    for (int i = 0; length >= 0 && PyTuple_GET_SIZE(reads) > 0 && i < said->count; i++) {
        const user_property *user = &said->users[i];
        Py_ssize_t size = 5 + user->name_length + user->value_length;
        if (!is_read(reads, user)) continue;
        if (length + size > LONGEST_REST) return -1;
        memcpy(to + length, user->name - 3, (size_t)size); /* with what it begins with, and its length */
        length += size;
    }
    return length;
}

/* The route of publications on a route that have these properties; see FastLane.variant: a new reference; Py_None: the plain lane takes
 * them; NULL: an error is set. */
static PyObject *variant_of(const taking *of, PyObject *route, const unsigned char *properties, Py_ssize_t length)
{
    PyObject *topic = field(route, WIRE_TOPIC), *first = field(route, FIRST);
    if (topic == NULL || first == NULL || !PyBytes_CheckExact(topic)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a topic is bytes");
        return NULL;
    }
    PyObject *cache = cache_of(of, (unsigned)as_long(first));
    PyObject *key = cache != NULL ? PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(topic) + 1 + length) : NULL;
    if (key == NULL) return NULL;
    char *to = PyBytes_AS_STRING(key);
    memcpy(to, PyBytes_AS_STRING(topic), (size_t)PyBytes_GET_SIZE(topic));
    to += PyBytes_GET_SIZE(topic);
    *to++ = 0; /* no topic has one */
    memcpy(to, properties, (size_t)length);
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(cache, key));
    Py_DECREF(key);
    if (found == NULL && !PyErr_Occurred()) {
        PyObject *rest = PyBytes_FromStringAndSize((const char *)properties, length);
        if (rest != NULL) found = PyObject_CallMethodObjArgs(of->turn->lane, s_variant, of->connection, route, rest, NULL);
        Py_XDECREF(rest);
    }
    if (found == NULL || found == Py_None || is_a(found, A_ROUTE)) return found;
    Py_DECREF(found);
    PyErr_SetString(PyExc_TypeError, "a variant of a route is a route");
    return NULL;
}

enum { FEW_TOPICS = 4 };

/* Find a topic among the few of a client by comparing, which costs less than a key and its hash: its key and route, borrowed. 0: it
 * is not there, or there are more. */
static int find_among_few(PyObject *cache, const publication *one, PyObject **key, PyObject **route)
{
    if (PyDict_GET_SIZE(cache) > FEW_TOPICS) return 0;
    for (Py_ssize_t at = 0; PyDict_Next(cache, &at, key, route);)
        if (PyBytes_CheckExact(*key) && PyBytes_GET_SIZE(*key) == one->topic_length && !memcmp(PyBytes_AS_STRING(*key), one->topic, (size_t)one->topic_length))
            return 1;
    return 0;
}

/* The route of a publication, as route_of(), and its topic: a new reference, or NULL with an error set. */
static PyObject *route_and_topic(const taking *of, unsigned first, const publication *one, PyObject **topic, long *path)
{
    PyObject *cache = cache_of(of, first), *key = NULL, *known;
    if (cache != NULL) /* a key of the cache knows its hash */
        key = find_among_few(cache, one, &key, &known) ? Py_NewRef(key) : PyBytes_FromStringAndSize((const char *)one->topic, one->topic_length);
    *topic = key;
    return key != NULL ? route_of(of, cache, first, key, path) : NULL;
}

/* -- several packets ahead -- */

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
    unsigned alias;
    PyObject *topic; /* of an alias: a reference is held; NULL: it has none */
} upcoming;

static void forget_ahead(upcoming *ahead, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        Py_CLEAR(ahead[i].route);
        Py_CLEAR(ahead[i].topic);
    }
}

/* Read the next packets, and prefetch the entries of their topics. */
static int read_ahead(const taking *of, unsigned first, const publication *before, const topic_cache *topics, upcoming *ahead)
{
    int count = 0;
    Py_ssize_t at = of->at;
    for (; count < AHEAD && read_publication(of, at, first, &ahead[count].one); count++) {
        upcoming *next = &ahead[count];
        next->route = next->topic = NULL;
        next->alias = 0;
        if (next->one.block_length != 0) read_properties(next->one.block, next->one.block_length, NULL, &next->alias);
        if (next->alias != 0 && count > 0) break; /* what comes before it may set the alias */
        at = next->one.stop;
        if (topics != NULL) next->hash = topic_hash(next->one.topic, next->one.topic_length);
        int is_like = before->topic != NULL && (topics == NULL || count == 0 || next->hash == ahead[count - 1].hash);
        next->is_other = !is_like || !same_topic(&next->one, before);
        before = &next->one;
        if (topics != NULL && next->is_other) prefetch(index_at(topics, next->hash, 0));
    }
    if (count > 0 && ahead[0].alias != 0) return 1;
    for (int i = 0; topics != NULL && i < count; i++)
        if (ahead[i].is_other) prefetch_entry(topics, ahead[i].hash);
    return count;
}

static void prefetch_route(PyObject *route, const void *head)
{
    prefetch(route);
    prefetch((const char *)route + offsets[VERSION_OF_ROUTE]); /* the last slot that is read for each message */
    prefetch(head);
}

/* The route of a topic in the cache, if there is one: borrowed. NULL with an error set: there is no memory. */
static PyObject *cached_route(PyObject *cache, topic_cache *topics, const upcoming *next)
{
    const publication *one = &next->one;
    entry *found = topics != NULL ? find_entry(topics, next->hash, one->topic, one->topic_length) : NULL;
    if (found != NULL) {
        prefetch_route(found->route, found->head);
        return found->route;
    }
    PyObject *key, *route;
    if (!find_among_few(cache, one, &key, &route)) {
        key = PyBytes_FromStringAndSize((const char *)one->topic, one->topic_length);
        route = key != NULL ? PyDict_GetItemWithError(cache, key) : NULL;
        Py_XDECREF(key);
    }
    if (route == NULL || !is_a(route, A_ROUTE)) return route;
    const void *head = *place(route, HEAD);
    prefetch_route(route, head);
    if (topics != NULL) keep_entry(topics, next->hash, one->topic, one->topic_length, route, head);
    return route;
}

/* The topic of a publication with an alias: 1; 0: the plain lane looks at it; -1: an error is set. */
static int resolve_alias(const taking *of, upcoming *next, const topic_cache *topics)
{
    PyObject *alias = PyLong_FromLong((long)next->alias), *known = NULL;
    PyObject *topic = PyBytes_FromStringAndSize((const char *)next->one.topic, next->one.topic_length);
    if (alias != NULL && topic != NULL) known = PyObject_CallMethodObjArgs(of->turn->lane, s_aliased, of->connection, alias, topic, NULL);
    Py_XDECREF(alias);
    Py_XDECREF(topic);
    if (known == NULL || !PyBytes_CheckExact(known)) {
        Py_XDECREF(known);
        return PyErr_Occurred() ? -1 : 0;
    }
    next->topic = known;
    next->one.topic = (const unsigned char *)PyBytes_AS_STRING(known);
    next->one.topic_length = PyBytes_GET_SIZE(known);
    next->is_other = 1;
    if (topics != NULL) next->hash = topic_hash(next->one.topic, next->one.topic_length);
    return 1;
}

/* Read and look up the next packets: how many they are; -1: an error is set. */
static int look_ahead(const taking *of, unsigned first, const publication *before, PyObject *cache, upcoming *ahead)
{
    topic_cache *topics = as_topic_cache(cache);
    if (topics != NULL && !make_room(topics)) topics = NULL;
    PyObject *found[AHEAD];
    int count = read_ahead(of, first, before, topics, ahead);
    if (count > 0 && ahead[0].alias != 0 && (count = resolve_alias(of, ahead, topics)) <= 0) return count;
    for (int i = 0; i < count; i++)
        if ((found[i] = ahead[i].is_other ? cached_route(cache, topics, &ahead[i]) : NULL) == NULL && PyErr_Occurred())
            return -1;
    for (int i = 0; i < count; i++) ahead[i].route = Py_XNewRef(found[i]); /* now, as this touches the prefetched routes */
    return count;
}
