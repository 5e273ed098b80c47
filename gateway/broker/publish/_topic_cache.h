/*
 * The routes of a client with many topics: a dict from topic to route that also has an array of entries, one cache line
 * for each topic, in the order in which topics were first used. A lookup in a dict goes through its index, its entries,
 * the topic and the route; where a client publishes to thousands of topics in turn each of these is a cache miss.
 *
 * The dict is the truth: a topic without an entry is looked up there. Topics are added one by one and removed many
 * at once, after which the entries are made again.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { LONGEST_TOPIC = 42, PROBES = 8, FEWEST_ENTRIES = 64, MOST_ENTRIES = 1 << 15, CACHE_LINE = 64 };

typedef struct {
    PyObject *route;  /* held */
    const void *head; /* address of its head: prefetched, never read through this pointer */
    uint32_t hash;
    uint16_t length;
    unsigned char topic[LONGEST_TOPIC];
} entry;

typedef struct {
    PyDictObject dict;
    entry *entries;    /* aligned to a cache line */
    uint32_t *index;   /* by hash: number of an entry plus one, and the upper bits of its hash; 0: empty */
    size_t used, room; /* entries; the index has twice as many places, a power of two */
    void *memory;      /* of entries and index; NULL: none yet */
} topic_cache;

static PyTypeObject topic_cache_type;

static inline topic_cache *as_topic_cache(PyObject *cache)
{
    return Py_IS_TYPE(cache, &topic_cache_type) ? (topic_cache *)cache : NULL;
}

/* Crafted collisions gain an attacker nothing: after PROBES probes the lookup falls back to the dict. */
static inline uint32_t topic_hash(const unsigned char *topic, Py_ssize_t length)
{
    uint64_t sum = (uint64_t)length, next;
    for (; length >= 8; topic += 8, length -= 8) {
        memcpy(&next, topic, 8);
        sum = (sum ^ next) * UINT64_C(0x9E3779B97F4A7C15);
        sum ^= sum >> 32;
    }
    for (next = 0; length > 0; topic++, length--) next = next << 8 | *topic;
    sum = (sum ^ next) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(sum >> 32); /* the upper bits are the best */
}

static void forget_entries(topic_cache *cache)
{
    void *memory = cache->memory;
    entry *entries = cache->entries;
    size_t used = cache->used;
    cache->memory = NULL;
    cache->used = cache->room = 0;
    for (size_t n = 0; n < used; n++) Py_DECREF(entries[n].route);
    PyMem_Free(memory);
}

/* The place in the index where a hash is looked for at this probe. */
static inline uint32_t *index_at(const topic_cache *cache, uint32_t hash, int probe)
{
    return cache->index + ((hash + (uint32_t)probe) & (2 * cache->room - 1));
}

static inline uint32_t hash_bits(uint32_t hash)
{
    return hash & 0xFFFF0000u;
}

/* The next entry that may have this hash; NULL: there is none. */
static inline entry *next_entry(const topic_cache *cache, uint32_t hash, int *probe)
{
    while (*probe < PROBES) {
        uint32_t there = *index_at(cache, hash, (*probe)++);
        if (there == 0) return NULL;
        if (hash_bits(there) == hash_bits(hash)) return cache->entries + (there & 0xFFFF) - 1;
    }
    return NULL;
}

static inline void prefetch_entry(const topic_cache *cache, uint32_t hash)
{
    int probe = 0;
    const entry *likely = next_entry(cache, hash, &probe);
    if (likely != NULL) prefetch(likely);
}

static inline entry *find_entry(const topic_cache *cache, uint32_t hash, const unsigned char *topic, Py_ssize_t length)
{
    int probe = 0;
    entry *at;
    while ((at = next_entry(cache, hash, &probe)) != NULL)
        if (at->hash == hash && at->length == length && memcmp(at->topic, topic, (size_t)length) == 0) break;
    return at;
}

/* Whether there was a place in the index. */
static int enter_index(topic_cache *cache, uint32_t hash, size_t number)
{
    for (int probe = 0; probe < PROBES; probe++) {
        uint32_t *place = index_at(cache, hash, probe);
        if (*place != 0) continue;
        *place = hash_bits(hash) | (uint32_t)(number + 1);
        return 1;
    }
    return 0;
}

/* Make room for as many topics as the dict has; 0: there is no memory at all. */
static int make_room(topic_cache *cache)
{
    size_t wanted = FEWEST_ENTRIES, topics = (size_t)PyDict_GET_SIZE((PyObject *)cache);
    while (wanted < topics && wanted < MOST_ENTRIES) wanted *= 2;
    if (wanted <= cache->room) return 1;
    char *memory = PyMem_Calloc(1, CACHE_LINE + wanted * (sizeof(entry) + 2 * sizeof(uint32_t)));
    if (memory == NULL) return cache->memory != NULL;
    entry *entries = (entry *)(((uintptr_t)memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    if (cache->used != 0) memcpy(entries, cache->entries, cache->used * sizeof *entries);
    PyMem_Free(cache->memory);
    cache->memory = memory;
    cache->entries = entries;
    cache->index = (uint32_t *)(entries + wanted);
    cache->room = wanted;
    for (size_t n = 0; n < cache->used; n++) enter_index(cache, entries[n].hash, n);
    return 1;
}

static void keep_entry(topic_cache *cache, uint32_t hash, const unsigned char *topic, Py_ssize_t length, PyObject *route,
                      const void *head)
{
    if (length > LONGEST_TOPIC || cache->used == cache->room || !enter_index(cache, hash, cache->used)) return;
    entry *at = cache->entries + cache->used++;
    at->route = Py_NewRef(route);
    at->head = head;
    at->hash = hash;
    at->length = (uint16_t)length;
    memcpy(at->topic, topic, (size_t)length);
}

static int topic_cache_traverse(PyObject *self, visitproc visit, void *arg)
{
    topic_cache *cache = (topic_cache *)self;
    for (size_t n = 0; n < cache->used; n++) Py_VISIT(cache->entries[n].route);
    return PyDict_Type.tp_traverse(self, visit, arg);
}

static int topic_cache_tp_clear(PyObject *self)
{
    forget_entries((topic_cache *)self);
    return PyDict_Type.tp_clear(self);
}

static void topic_cache_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    forget_entries((topic_cache *)self);
    PyDict_Type.tp_dealloc(self);
}

/* An item is set or removed: the entries of those that are left are made again. */
static int topic_cache_assign(PyObject *self, PyObject *topic, PyObject *route)
{
    if (route == NULL) forget_entries((topic_cache *)self);
    return PyDict_Type.tp_as_mapping->mp_ass_subscript(self, topic, route);
}

static PyMappingMethods topic_cache_mapping = {.mp_ass_subscript = topic_cache_assign};

PyDoc_STRVAR(topic_cache_clear_doc, "clear() -> None\n\nRemove all topics.");

static PyObject *topic_cache_clear(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    forget_entries((topic_cache *)self);
    PyDict_Clear(self);
    Py_RETURN_NONE;
}

static PyMethodDef topic_cache_methods[] = {
    {"clear", topic_cache_clear, METH_NOARGS, topic_cache_clear_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject topic_cache_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gateway.broker.publish._fast.TopicCache",
    .tp_doc = PyDoc_STR("Routes by topic, a dict that are found quickly: topics are added one by one and removed many at once."),
    .tp_basicsize = sizeof(topic_cache),
    .tp_as_mapping = &topic_cache_mapping,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_traverse = topic_cache_traverse,
    .tp_clear = topic_cache_tp_clear,
    .tp_dealloc = topic_cache_dealloc,
    .tp_methods = topic_cache_methods,
};

static int add_topic_cache_type(PyObject *module)
{
    topic_cache_type.tp_base = &PyDict_Type;
    return PyModule_AddType(module, &topic_cache_type);
}
