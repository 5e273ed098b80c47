/*
 * Values that a Packing has met, and the gaps it wrote for them: devices publish on the same topics again and again,
 * with the same object as head. Found by address, and held as long as they are here: no other object has it.
 *
 * Room and work are bounded: a value that finds no room is not kept, and what was of no use between two rounds is let
 * go, a few places for each column.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { PLACES = 1 << 14, TRIED = 8, ROUND = 16, MOST_GAPS = 48, MOST_HELD = 16 << 20, CACHE_LINE = 64, NEAR_BITS = 8 };

typedef struct {
    PyObject *value; /* held; NULL: nobody */
    uint32_t patterns; /* what is below holds as long as these are the packing's */
    unsigned char family, unfit; /* the one it belongs to; a bit for each of those it is known not to */
    unsigned char is_used, length;
    unsigned char gaps[MOST_GAPS];
} one_met; /* a cache line */

typedef struct {
    one_met *places; /* NULL: there was no value yet */
    void *memory;    /* where they lie, from the beginning of a cache line on */
    size_t hand, held; /* where the round is; bytes of values */
} met;

/* Values that were made one after the other, as those of a client's topics, are near each other here too. */
static inline one_met *place_of(const met *all, const PyObject *value)
{
    return all->places + ((uintptr_t)value >> NEAR_BITS) % PLACES;
}

static inline void ask_for_place(const met *all, const PyObject *value)
{
    if (all->places != NULL) prefetch(place_of(all, value));
}

static inline one_met *find(const met *all, const PyObject *value)
{
    if (all->places == NULL) return NULL;
    one_met *at = place_of(all, value);
    for (int n = 0; n < TRIED; n++)
        if (at[n].value == value) return at + n;
    return NULL;
}

static inline void let_go(met *all, one_met *one)
{
    all->held -= (size_t)PyBytes_GET_SIZE(one->value);
    Py_CLEAR(one->value);
}

static int make_places(met *all)
{
    all->memory = PyMem_Calloc(PLACES + TRIED + 1, sizeof *all->places);
    if (all->memory == NULL) return 0;
    all->places = (one_met *)(((uintptr_t)all->memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    return 1;
}

/* Never an error: what is not remembered is worked out again. */
static void remember(met *all, PyObject *value, uint32_t patterns, int family, unsigned unfit,
                     const unsigned char *gaps, size_t length)
{
    if (length > MOST_GAPS) return;
    if (all->places == NULL && !make_places(all)) return;
    one_met *one = find(all, value);
    if (one == NULL) {
        size_t held = all->held + (size_t)PyBytes_GET_SIZE(value);
        one = place_of(all, value);
        for (int n = 0; n < TRIED - 1 && one->value != NULL; n++) one++;
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

static void let_some_go(met *all)
{
    for (int n = 0; all->places != NULL && n < ROUND; n++, all->hand = (all->hand + 1) % (PLACES + TRIED)) {
        one_met *one = all->places + all->hand;
        if (one->value != NULL && !one->is_used) let_go(all, one);
        one->is_used = 0;
    }
}

static void let_all_go(met *all)
{
    for (size_t n = 0; all->places != NULL && n < PLACES + TRIED; n++)
        if (all->places[n].value != NULL) let_go(all, all->places + n);
    PyMem_Free(all->memory);
    all->places = NULL;
}
