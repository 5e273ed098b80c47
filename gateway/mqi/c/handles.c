/* Message handles, and the packed form of their properties. Handles exist in the library alone: a client may call MQINQMP while
   it holds a lock that the queue manager needs, so nothing here waits for the queue manager. */
#include <stdlib.h>

#include "mqm.h"

enum { GENERATION_SHIFT = 32 };

typedef struct handle_slot {
    MQHMSG handle;                  /* 0: free */
    MQHCONN owner;
    bool validate;
    property_list properties;
} handle_slot;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static handle_slot *slots;
static size_t slot_count, first_free;
static MQHMSG generation;

/* ---- lists ---------------------------------------------------------------------------------------------------------------- */

static void property_free(property *p) {
    free(p->name);
    free(p->value);
}

void properties_clear(property_list *list) {
    for (size_t i = 0; i < list->count; i++) property_free(&list->items[i]);
    free(list->items);
    free(list->places);
    *list = (property_list){0};
}

view property_name(view name) {
    if (name.length > 4 && !memcmp(name.data, "usr.", 4)) return (view){name.data + 4, name.length - 4};
    return name;
}

/* ---- finding: name by name in a few or after a change, by a hash where much is looked for in many --------------------------- */

enum { PLACES_FOR_ONE = 4 };            /* at most a quarter of the places is taken */

static bool is_named(const property *p, view name) {
    return strlen(p->name) == name.length && !memcmp(p->name, name.data, name.length);
}

static size_t first_place(const property_list *list, view name) {
    size_t hash = 1469598103934665603u; /* FNV-1a */
    for (size_t i = 0; i < name.length; i++) hash = (hash ^ name.data[i]) * 1099511628211u;
    return (hash ^ hash >> 32) & (list->place_count - 1);
}

/* Of several of one name the first comes first. */
static void give_place(property_list *list, size_t index) {
    const char *name = list->items[index].name;
    size_t at = first_place(list, (view){(const unsigned char *)name, strlen(name)});
    while (list->places[at]) at = (at + 1) & (list->place_count - 1);
    list->places[at] = (MQLONG)index + 1;
}

static bool give_places(property_list *list) {
    list->places = calloc(list->capacity * PLACES_FOR_ONE, sizeof *list->places);
    if (!list->places) return false;
    list->place_count = list->capacity * PLACES_FOR_ONE;
    for (size_t i = 0; i < list->count; i++) give_place(list, i);
    return true;
}

void properties_moved(property_list *list) {
    free(list->places);
    list->places = NULL;
    list->looked = 0;
}

size_t properties_find(property_list *list, view name) {
    name = property_name(name);
    if (!list->count) return 0;
    if (!list->places && (list->looked < PLACES_FOR_ONE * list->count || !give_places(list))) {
        size_t i = 0;
        while (i < list->count && !is_named(&list->items[i], name)) i++;
        list->looked += i;
        return i;
    }
    for (size_t at = first_place(list, name); list->places[at]; at = (at + 1) & (list->place_count - 1))
        if (is_named(&list->items[list->places[at] - 1], name)) return (size_t)list->places[at] - 1;
    return list->count;
}

static void *copied(const void *data, size_t length) {
    char *copy = malloc(length + 1);
    if (!copy) return NULL;
    if (length) memcpy(copy, data, length);
    copy[length] = 0;
    return copy;
}

static property *properties_append(property_list *list) {
    if (list->count == list->capacity) {
        size_t wanted = list->capacity ? list->capacity * 2 : 8;
        property *grown = realloc(list->items, wanted * sizeof *grown);
        if (!grown) return NULL;
        list->items = grown;
        list->capacity = wanted;
        if (list->places) {
            properties_moved(list);
            give_places(list);
        }
    }
    return &list->items[list->count];
}

/* Adds a property with the type and descriptor of `like`. */
outcome properties_set(property_list *list, const property *like, view name, view value) {
    return properties_put(list, list->count, like, name, value);
}

/* The same in place of the one at `index`; `count`: behind all. */
outcome properties_put(property_list *list, size_t index, const property *like, view name, view value) {
    property *p = index < list->count ? &list->items[index] : properties_append(list);
    name = property_name(name);
    property made = *like;
    made.name = copied(name.data, name.length);
    made.value = copied(value.data, value.length);
    made.length = (MQLONG)value.length;
    if (!p || !made.name || !made.value) {
        property_free(&made);
        return failed(RC_STORAGE);
    }
    if (index < list->count) {
        if (!is_named(p, name)) properties_moved(list);
        property_free(p);
        *p = made;
        return done;
    }
    *p = made;
    list->count++;
    if (list->places) give_place(list, index);
    return done;
}

void properties_remove(property_list *list, size_t index) {
    property_free(&list->items[index]);
    memmove(&list->items[index], &list->items[index + 1], (list->count - index - 1) * sizeof *list->items);
    list->count--;
    properties_moved(list);
    if (list->cursor > index) list->cursor--;
}

/* Packed: for each property the length of its name (i4), name, type, support, context, copy, length of its value, value. */
static bool property_pack(const property *p, buffer *out) {
    size_t length = strlen(p->name);
    return buffer_i4(out, (MQLONG)length) && buffer_add(out, p->name, length) && buffer_i4(out, p->type) &&
           buffer_i4(out, p->support) && buffer_i4(out, p->context) && buffer_i4(out, p->copy) &&
           buffer_i4(out, p->length) && buffer_add(out, p->value, (size_t)p->length);
}

static bool names(property_list *list, const property *p) {
    return list->count && properties_find(list, (view){(const unsigned char *)p->name, strlen(p->name)}) < list->count;
}

/* Those of `original` that one of the copy options lets through, unless `changes` has them too; then `changes`, where a null takes
   away what `original` has (MQPMO, Action). */
bool properties_pack(property_list *original, property_list *changes, MQLONG copied, buffer *out) {
    bool fits = true;
    for (size_t i = 0; fits && i < original->count; i++) {
        const property *p = &original->items[i];
        if ((copied == MQCOPY_EVERY || p->copy & copied) && !names(changes, p)) fits = property_pack(p, out);
    }
    for (size_t i = 0; fits && i < changes->count; i++) {
        const property *p = &changes->items[i];
        if (p->type != MQTYPE_NULL || !names(original, p)) fits = property_pack(p, out);
    }
    return fits;
}

static bool take_i4(view *from, MQLONG *out) {
    if (from->length < 4) return false;
    memcpy(out, from->data, 4);
    *from = (view){from->data + 4, from->length - 4};
    return true;
}

static bool take_view(view *from, view *out) {
    MQLONG length;
    if (!take_i4(from, &length) || length < 0 || (size_t)length > from->length) return false;
    *out = (view){from->data, (size_t)length};
    *from = (view){from->data + length, from->length - (size_t)length};
    return true;
}

bool properties_unpack(property_list *list, view packed) {
    while (packed.length) {
        property p = {0};
        view name, value;
        if (!take_view(&packed, &name) || !take_i4(&packed, &p.type) || !take_i4(&packed, &p.support) ||
            !take_i4(&packed, &p.context) || !take_i4(&packed, &p.copy) || !take_view(&packed, &value)) return false;
        MQLONG fixed = type_length(p.type);
        if (fixed == -2 || (fixed >= 0 && value.length != (size_t)fixed)) return false;
        if (is_failed(properties_set(list, &p, name, value))) return false;
    }
    return true;
}

/* ---- handles --------------------------------------------------------------------------------------------------------------- */

static handle_slot *slot_of(MQHMSG handle) {
    size_t index = (size_t)(handle & 0xffffffff);
    return handle > 0 && index < slot_count && slots[index].handle == handle ? &slots[index] : NULL;
}

static handle_slot *free_slot(void) {
    while (first_free < slot_count && slots[first_free].handle) first_free++;
    if (first_free < slot_count) return &slots[first_free];
    size_t wanted = slot_count ? slot_count * 2 : 16;
    handle_slot *grown = realloc(slots, wanted * sizeof *grown);
    if (!grown) return NULL;
    memset(grown + slot_count, 0, (wanted - slot_count) * sizeof *grown);
    slots = grown;
    slot_count = wanted;
    return &slots[first_free];
}

static outcome list_of(MQHMSG handle, property_list **list) {
    handle_slot *slot = slot_of(handle);
    if (!slot) return failed(RC_HMSG);
    *list = &slot->properties;
    return done;
}

outcome handles_enter(MQHMSG first, property_list **one, MQHMSG second, property_list **other) {
    pthread_mutex_lock(&lock);
    outcome o = first == MQHM_NONE ? done : list_of(first, one);
    if (!is_failed(o) && second != MQHM_NONE) o = list_of(second, other);
    if (is_failed(o)) pthread_mutex_unlock(&lock);
    return o;
}

outcome handle_enter(MQHMSG handle, property_list **list) {
    return handle == MQHM_NONE ? failed(RC_HMSG) : handles_enter(handle, list, MQHM_NONE, NULL);
}

void handle_leave(void) { pthread_mutex_unlock(&lock); }

static void slot_clear(handle_slot *slot) {
    properties_clear(&slot->properties);
    slot->handle = MQHM_NONE;
    if ((size_t)(slot - slots) < first_free) first_free = (size_t)(slot - slots);
}

void handles_drop(MQHCONN hconn) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < slot_count; i++)
        if (slots[i].handle && slots[i].owner == hconn) slot_clear(&slots[i]);
    pthread_mutex_unlock(&lock);
}

void handles_reset_lock(void) { pthread_mutex_init(&lock, NULL); }

/* Some clients pass 0 for MQHC_UNASSOCIATED_HCONN (-3): both make a handle that belongs to no connection. */
static bool unassociated(MQHCONN hconn) { return hconn == MQHC_UNASSOCIATED_HCONN || hconn == MQHC_DEF_HCONN; }

static outcome create(MQHCONN hconn, const MQCMHO *options, PMQHMSG out) {
    connection *c;
    outcome o = check_structure(options, "CMHO", MQCMHO_CURRENT_VERSION, RC_CMHO);
    if (!is_failed(o) && !out) o = failed(RC_HMSG);
    if (is_failed(o)) return o;
    static const MQLONG known = MQCMHO_NO_VALIDATION | MQCMHO_VALIDATE;
    if (options->Options & ~known || options->Options == known) return failed(RC_OPTIONS);
    if (!unassociated(hconn)) {
        o = enter_any(hconn, &c);
        if (is_failed(o)) return o;
        leave(c);
    }
    pthread_mutex_lock(&lock);
    handle_slot *slot = free_slot();
    if (slot) {
        generation = generation % 0x7fffff + 1;
        *slot = (handle_slot){.handle = generation << GENERATION_SHIFT | (slot - slots), .owner = hconn,
                              .validate = !(options->Options & MQCMHO_NO_VALIDATION)};
        *out = slot->handle;
    }
    pthread_mutex_unlock(&lock);
    return slot ? done : failed(RC_HMSG_NOT_AVAILABLE);
}

EXPORT void MQCRTMH(MQHCONN hconn, PMQVOID options, PMQHMSG handle, PMQLONG cc, PMQLONG rc) {
    report(create(hconn, options, handle), cc, rc);
}

EXPORT void MQDLTMH(MQHCONN hconn, PMQHMSG handle, PMQVOID options, PMQLONG cc, PMQLONG rc) {
    (void)hconn;
    outcome o = check_structure(options, "DMHO", MQDMHO_CURRENT_VERSION, RC_DMHO);
    if (!is_failed(o) && !handle) o = failed(RC_HMSG);
    if (is_failed(o)) return report(o, cc, rc);
    pthread_mutex_lock(&lock);
    handle_slot *slot = slot_of(*handle);
    if (slot) slot_clear(slot);
    pthread_mutex_unlock(&lock);
    if (slot) *handle = MQHM_UNUSABLE_HMSG;
    report(slot ? done : failed(RC_HMSG), cc, rc);
}

bool handle_validates(MQHMSG handle) {
    handle_slot *slot = slot_of(handle);
    return slot && slot->validate;
}
