/*
 * What a Packing has written for values of earlier columns: devices publish on the same topics again and again, with the
 * same bytes object as head. Entries are found by the object's address. The object is held as long as its entry exists,
 * so that no other object can have the address.
 *
 * Memory and work are bounded: a value for which there is no free entry is not remembered, and each column evicts a few
 * entries that were not used since it last came past them.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { ENTRIES = 1 << 14, PROBES = 8, MOST_GAPS = 48, MOST_HELD = 16 << 20, CACHE_LINE = 64, ADDRESS_SHIFT = 8 };
enum { EXAMINED_A_COLUMN = 16 };

typedef struct {
    PyObject *value; /* held; NULL: the entry is free */
    uint32_t patterns; /* the rest is valid while this is the packing's count of pattern changes */
    unsigned char family, unfit; /* the value's family; a bit for each family whose pattern does not fit it */
    unsigned char is_used, length;
    unsigned char gaps[MOST_GAPS]; /* what was written for the value */
} entry; /* a cache line */

typedef struct {
    entry *entries; /* NULL: no value was remembered yet */
    void *memory;   /* where the entries are, from the beginning of a cache line on */
    size_t hand, held; /* the entry that is examined next; bytes of all values */
} cache;

/* Values that were made one after the other, as those of a client's topics, have entries close to each other. */
static inline entry *entry_for(const cache *all, const PyObject *value)
{
    return all->entries + ((uintptr_t)value >> ADDRESS_SHIFT) % ENTRIES;
}

static inline void prefetch_entry(const cache *all, const PyObject *value)
{
    if (all->entries != NULL) prefetch(entry_for(all, value));
}

static inline entry *find(const cache *all, const PyObject *value)
{
    if (all->entries == NULL) return NULL;
    entry *at = entry_for(all, value);
    for (int n = 0; n < PROBES; n++)
        if (at[n].value == value) return at + n;
    return NULL;
}

static inline void evict(cache *all, entry *one)
{
    all->held -= (size_t)PyBytes_GET_SIZE(one->value);
    Py_CLEAR(one->value);
}

static int allocate_entries(cache *all)
{
    all->memory = PyMem_Calloc(ENTRIES + PROBES + 1, sizeof *all->entries);
    if (all->memory == NULL) return 0;
    all->entries = (entry *)(((uintptr_t)all->memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    return 1;
}

/* Never an error: what is not remembered is worked out again. */
static void remember(cache *all, PyObject *value, uint32_t patterns, int family, unsigned unfit,
                     const unsigned char *gaps, size_t length)
{
    if (length > MOST_GAPS) return;
    if (all->entries == NULL && !allocate_entries(all)) return;
    entry *one = find(all, value);
    if (one == NULL) {
        size_t held = all->held + (size_t)PyBytes_GET_SIZE(value);
        one = entry_for(all, value);
        for (int n = 0; n < PROBES - 1 && one->value != NULL; n++) one++;
        if (one->value != NULL || held > MOST_HELD) return;
        one->value = Py_NewRef(value);
        all->held = held;
    }
    one->patterns = patterns;
    one->family = (unsigned char)family;
    one->unfit = (unsigned char)unfit;
    one->is_used = 1;
    one->length = (unsigned char)length;
    memcpy(one->gaps, gaps, length);
}

static void evict_unused(cache *all)
{
    for (int n = 0; all->entries != NULL && n < EXAMINED_A_COLUMN; n++) {
        entry *one = all->entries + all->hand;
        if (one->value != NULL && !one->is_used) evict(all, one);
        one->is_used = 0;
        all->hand = (all->hand + 1) % (ENTRIES + PROBES);
    }
}

static void clear_cache(cache *all)
{
    for (size_t n = 0; all->entries != NULL && n < ENTRIES + PROBES; n++)
        if (all->entries[n].value != NULL) evict(all, all->entries + n);
    PyMem_Free(all->memory);
    all->entries = NULL;
}
