/*
 * Routes of a client with many topics, close together: a dict whose topics and what they lead to are also found in a
 * cache line each, in the order in which they were first met. A look into a dict goes through its index, its entries, the
 * topic and the route; where a client takes thousands in turn, each of these is memory that takes a while to answer.
 *
 * The dict is what counts: what is not here is looked up there. Nothing leaves it but all of it (clear()).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { NEAR_TOPIC = 42, NEAR_TRIED = 8, NEAR_FEWEST = 64, NEAR_MOST = 1 << 15, NEAR_LINE = 64 };

typedef struct {
    PyObject *route;  /* held */
    const void *head; /* where its head lies: to be asked for, never read */
    uint32_t hash;
    uint16_t length;
    unsigned char topic[NEAR_TOPIC];
} neighbour;

typedef struct {
    PyDictObject dict;
    neighbour *met;    /* from the beginning of a cache line on */
    uint32_t *index;   /* by hash: a number among them plus one, beside bits of the hash; 0: nobody */
    size_t used, room; /* the index is twice as long, a power of two */
    void *memory;      /* where all that lies; NULL: nowhere yet */
} near_dict;

static PyTypeObject near_type;

static inline near_dict *as_near(PyObject *cache)
{
    return Py_IS_TYPE(cache, &near_type) ? (near_dict *)cache : NULL;
}

/* Whoever chooses topics that meet here gains nothing: they are looked up in the dict. */
static inline uint32_t near_hash(const unsigned char *topic, Py_ssize_t length)
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

static void near_forget(near_dict *all)
{
    void *memory = all->memory;
    neighbour *met = all->met;
    size_t used = all->used;
    all->memory = NULL;
    all->used = all->room = 0;
    for (size_t n = 0; n < used; n++) Py_DECREF(met[n].route);
    PyMem_Free(memory);
}

/* Where in the index a hash is looked for first. */
static inline uint32_t *near_place(const near_dict *all, uint32_t hash, int tried)
{
    return all->index + ((hash + (uint32_t)tried) & (2 * all->room - 1));
}

static inline uint32_t near_mark(uint32_t hash)
{
    return hash & 0xFFFF0000u;
}

/* The next that may have this hash; NULL: nobody. */
static inline neighbour *near_next(const near_dict *all, uint32_t hash, int *tried)
{
    while (*tried < NEAR_TRIED) {
        uint32_t there = *near_place(all, hash, (*tried)++);
        if (there == 0) return NULL;
        if (near_mark(there) == near_mark(hash)) return all->met + (there & 0xFFFF) - 1;
    }
    return NULL;
}

static inline void near_ask(const near_dict *all, uint32_t hash)
{
    int tried = 0;
    const neighbour *likely = near_next(all, hash, &tried);
    if (likely != NULL) prefetch(likely);
}

static inline neighbour *near_find(const near_dict *all, uint32_t hash, const unsigned char *topic, Py_ssize_t length)
{
    int tried = 0;
    neighbour *at;
    while ((at = near_next(all, hash, &tried)) != NULL)
        if (at->hash == hash && at->length == length && memcmp(at->topic, topic, (size_t)length) == 0) break;
    return at;
}

/* Whether there was a place in the index. */
static int near_enter(near_dict *all, uint32_t hash, size_t number)
{
    for (int tried = 0; tried < NEAR_TRIED; tried++) {
        uint32_t *place = near_place(all, hash, tried);
        if (*place != 0) continue;
        *place = near_mark(hash) | (uint32_t)(number + 1);
        return 1;
    }
    return 0;
}

/* Room for as many topics as the dict has; 0: there is none at all. */
static int near_room(near_dict *all)
{
    size_t wanted = NEAR_FEWEST, topics = (size_t)PyDict_GET_SIZE((PyObject *)all);
    while (wanted < topics && wanted < NEAR_MOST) wanted *= 2;
    if (wanted <= all->room) return 1;
    char *memory = PyMem_Calloc(1, NEAR_LINE + wanted * (sizeof(neighbour) + 2 * sizeof(uint32_t)));
    if (memory == NULL) return all->memory != NULL;
    neighbour *met = (neighbour *)(((uintptr_t)memory + NEAR_LINE - 1) & ~(uintptr_t)(NEAR_LINE - 1));
    if (all->used != 0) memcpy(met, all->met, all->used * sizeof *met);
    PyMem_Free(all->memory);
    all->memory = memory;
    all->met = met;
    all->index = (uint32_t *)(met + wanted);
    all->room = wanted;
    for (size_t n = 0; n < all->used; n++) near_enter(all, met[n].hash, n);
    return 1;
}

static void near_keep(near_dict *all, uint32_t hash, const unsigned char *topic, Py_ssize_t length, PyObject *route,
                      const void *head)
{
    if (length > NEAR_TOPIC || all->used == all->room || !near_enter(all, hash, all->used)) return;
    neighbour *at = all->met + all->used++;
    at->route = Py_NewRef(route);
    at->head = head;
    at->hash = hash;
    at->length = (uint16_t)length;
    memcpy(at->topic, topic, (size_t)length);
}

static int near_traverse(PyObject *self, visitproc visit, void *arg)
{
    near_dict *all = (near_dict *)self;
    for (size_t n = 0; n < all->used; n++) Py_VISIT(all->met[n].route);
    return PyDict_Type.tp_traverse(self, visit, arg);
}

static int near_tp_clear(PyObject *self)
{
    near_forget((near_dict *)self);
    return PyDict_Type.tp_clear(self);
}

static void near_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    near_forget((near_dict *)self);
    PyDict_Type.tp_dealloc(self);
}

PyDoc_STRVAR(near_clear_doc, "clear() -> None\n\nAll of it.");

static PyObject *near_clear(PyObject *self, PyObject *Py_UNUSED(nothing))
{
    near_forget((near_dict *)self);
    PyDict_Clear(self);
    Py_RETURN_NONE;
}

static PyMethodDef near_methods[] = {
    {"clear", near_clear, METH_NOARGS, near_clear_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject near_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gateway.broker.publish._chunks.Topics",
    .tp_doc = PyDoc_STR("A dict of routes by topic that take() finds quickly: topics are added, or all cleared."),
    .tp_basicsize = sizeof(near_dict),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_traverse = near_traverse,
    .tp_clear = near_tp_clear,
    .tp_dealloc = near_dealloc,
    .tp_methods = near_methods,
};

static int near_add_type(PyObject *module)
{
    near_type.tp_base = &PyDict_Type;
    return PyModule_AddType(module, &near_type);
}
