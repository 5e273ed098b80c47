/*
 * A table that gives each distinct byte string a number. A fleet has the same few thousand heads again and again: the
 * reader of a frame gets the number of each head, and the bytes only of heads that are new.
 *
 * head_numbers.py has the same type in Python, which runs where there was no compiler at installation; the tests compare
 * the two.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_packed_heads.h"
#include "../../built_from.h"

BUILT_FROM_THIS_FILE;

enum { FEWEST_SLOTS = 1024, MOST_VALUES = 1 << 28 };

typedef struct {
    uint64_t hash, begin;
    uint32_t length;
    uint32_t round, place; /* the last round it was added in, and its number in that round */
} value;

typedef struct {
    PyObject_HEAD
    unsigned char *text;
    size_t used, room;
    value *values;
    uint32_t *in_round; /* the numbers of the values of this round; room as for the values */
    size_t count, most;
    uint32_t round_count, round;
    uint32_t *slots; /* numbers plus one by hash; `mask` is one less than their power of two */
    size_t mask;
    uint64_t seed;
    long long generation;
} head_numbers;

static uint64_t eight(const unsigned char *at)
{
    uint64_t found;
    memcpy(&found, at, sizeof found);
    return found;
}

/* The two halves of a product folded together. */
static uint64_t folded(uint64_t one, uint64_t other)
{
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = (unsigned __int128)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t a = one >> 32, b = (uint32_t)one, c = other >> 32, d = (uint32_t)other;
    uint64_t low = b * d, cross = a * d + (low >> 32), also = b * c + (uint32_t)cross;
    return (also << 32 | (uint32_t)low) ^ (a * c + (cross >> 32) + (also >> 32));
#endif
}

/* The seed differs from process to process: otherwise a client could choose topics that all hash to one slot. The bytes
   are always compared. */
uint64_t hash_of(uint64_t seed, const unsigned char *at, size_t length)
{
    static const uint64_t odd = UINT64_C(0x9E3779B97F4A7C15), other = UINT64_C(0xD1B54A32D192ED03);
    uint64_t a = seed ^ length, b = seed + odd, c = seed - other, d = seed ^ odd;
    const unsigned char *end = at + length;
    if (length >= 64) { /* four products at a time; the last ones overlap those before */
        for (;; at = end - at > 128 ? at + 64 : end - 64) {
            a = folded(eight(at) ^ odd, eight(at + 8) ^ a);
            b = folded(eight(at + 16) ^ odd, eight(at + 24) ^ b);
            c = folded(eight(at + 32) ^ odd, eight(at + 40) ^ c);
            d = folded(eight(at + 48) ^ odd, eight(at + 56) ^ d);
            if (at == end - 64) break;
        }
    } else {
        for (; end - at >= 8; at += 8) a = folded(eight(at) ^ odd, a ^ other);
        uint64_t rest = 0;
        memcpy(&rest, at, (size_t)(end - at));
        b ^= rest;
    }
    return folded(a ^ odd, b ^ other) ^ folded(c ^ other, d ^ odd);
}

static int more_slots(head_numbers *self, size_t size)
{
    uint32_t *slots = PyMem_Calloc(size, sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t number = 0; number < self->count; number++) {
        size_t at = self->values[number].hash & (size - 1);
        while (slots[at] != 0) at = (at + 1) & (size - 1);
        slots[at] = (uint32_t)number + 1;
    }
    PyMem_Free(self->slots);
    self->slots = slots;
    self->mask = size - 1;
    return 0;
}

/* Room for one more value of this length. */
static int grow(head_numbers *self, size_t length)
{
    if (self->used + length > self->room || self->text == NULL) {
        size_t room = self->used + length + self->room / 2 + 4096;
        unsigned char *text = PyMem_Realloc(self->text, room);
        if (text == NULL) goto no_memory;
        self->text = text;
        self->room = room;
    }
    if (self->count == self->most) {
        size_t most = self->most * 2 + 256;
        value *values = PyMem_Realloc(self->values, most * sizeof *values);
        if (values == NULL) goto no_memory;
        self->values = values;
        uint32_t *in_round = PyMem_Realloc(self->in_round, most * sizeof *in_round);
        if (in_round == NULL) goto no_memory;
        self->in_round = in_round;
        self->most = most;
    }
    if (2 * (self->count + 1) > self->mask) return more_slots(self, 2 * (self->mask + 1));
    return 0;
no_memory:
    PyErr_NoMemory();
    return -1;
}

/* The number of a value among all; -1 with an error set. */
static Py_ssize_t number_of(head_numbers *self, const unsigned char *text, size_t length)
{
    uint64_t hash = hash_of(self->seed, text, length);
    size_t at = hash & self->mask;
    for (; self->slots[at] != 0; at = (at + 1) & self->mask) {
        const value *one = &self->values[self->slots[at] - 1];
        if (one->hash == hash && one->length == length && memcmp(self->text + one->begin, text, length) == 0)
            return self->slots[at] - 1;
    }
    if (self->count >= MOST_VALUES) {
        PyErr_SetString(PyExc_MemoryError, "there are too many values");
        return -1;
    }
    size_t mask = self->mask;
    if (grow(self, length) < 0) return -1;
    if (self->mask != mask)
        for (at = hash & self->mask; self->slots[at] != 0;) at = (at + 1) & self->mask;
    self->values[self->count] = (value){hash, self->used, (uint32_t)length, 0, 0};
    memcpy(self->text + self->used, text, length);
    self->used += length;
    self->slots[at] = (uint32_t)++self->count;
    return (Py_ssize_t)self->count - 1;
}

/* The number of a value among those of this round. */
static Py_ssize_t place_of(head_numbers *self, const unsigned char *text, size_t length)
{
    Py_ssize_t number = number_of(self, text, length);
    if (number < 0) return -1;
    value *one = &self->values[number];
    if (one->round != self->round) {
        one->round = self->round;
        one->place = self->round_count;
        self->in_round[self->round_count++] = (uint32_t)number;
    }
    return one->place;
}

/* -- calls -- */

static void forget_round(head_numbers *self)
{
    self->round_count = 0;
    if (++self->round == 0) { /* the counter has wrapped: marks of old rounds must not count */
        for (size_t number = 0; number < self->count; number++) self->values[number].round = 0;
        self->round = 1;
    }
}

static PyObject *numbers_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    (void)args;
    (void)named;
    PyObject *word = PyUnicode_FromString("head numbers");
    if (word == NULL) return NULL;
    uint64_t seed = (uint64_t)PyObject_Hash(word); /* the same in all of Spark's workers, addresses are not */
    Py_DECREF(word);
    head_numbers *self = (head_numbers *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->seed = seed ^ (uint64_t)(uintptr_t)self << 16 ^ (uint64_t)(uintptr_t)&numbers_new;
    self->round = 1;
    if (more_slots(self, FEWEST_SLOTS) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void numbers_dealloc(PyObject *object)
{
    head_numbers *self = (head_numbers *)object;
    PyMem_Free(self->text);
    PyMem_Free(self->values);
    PyMem_Free(self->in_round);
    PyMem_Free(self->slots);
    PyTypeObject *type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyDoc_STRVAR(begin_doc, "begin() -> None\n\nA new round: places are counted from 0 again.");

static PyObject *numbers_begin(PyObject *self, PyObject *none)
{
    (void)none;
    forget_round((head_numbers *)self);
    Py_RETURN_NONE;
}

static PyObject *places(Py_ssize_t count, uint32_t **numbers)
{
    PyObject *found = PyBytes_FromStringAndSize(NULL, 4 * count);
    if (found != NULL) *numbers = (uint32_t *)PyBytes_AS_STRING(found);
    return found;
}

static PyObject *add_column(head_numbers *self, const Py_buffer *bounds, const Py_buffer *data)
{
    Py_ssize_t count = bounds->len / 4 - 1;
    uint32_t *out;
    if (bounds->len < 4 || bounds->len % 4) {
        PyErr_SetString(PyExc_ValueError, "bounds of values are numbers of 4 bytes, one more than there are values");
        return NULL;
    }
    PyObject *found = places(count, &out);
    if (found == NULL) return NULL;
    const unsigned char *at = bounds->buf;
    uint32_t begin, end;
    memcpy(&begin, at, 4);
    for (Py_ssize_t row = 0; row < count; row++, begin = end) {
        memcpy(&end, at += 4, 4);
        Py_ssize_t place = -1;
        if (end < begin || (Py_ssize_t)end > data->len) PyErr_SetString(PyExc_ValueError, "bounds of values do not ascend");
        else place = place_of(self, (const unsigned char *)data->buf + begin, end - begin);
        if (place < 0) {
            Py_DECREF(found);
            return NULL;
        }
        out[row] = (uint32_t)place;
    }
    return found;
}

PyDoc_STRVAR(add_doc,
"add(bounds, data, /) -> bytes\n\n"
"The place of each value in this round, as numbers of 32 bits in the machine's order. bounds: where in data each begins\n"
"and the last one ends, numbers of 32 bits.");

static PyObject *numbers_add(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer bounds, data;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "add(bounds, data)");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &bounds, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *found = NULL;
    if (PyObject_GetBuffer(args[1], &data, PyBUF_SIMPLE) == 0) {
        found = add_column((head_numbers *)self, &bounds, &data);
        PyBuffer_Release(&data);
    }
    PyBuffer_Release(&bounds);
    return found;
}

typedef struct {
    head_numbers *of;
    uint32_t *out;
} placing;

/* For each_packed: 0, or -1 with an error set. */
static int place_next(void *context, const unsigned char *text, Py_ssize_t length)
{
    placing *all = context;
    Py_ssize_t place = place_of(all->of, text, (size_t)length);
    if (place < 0) return -1;
    *all->out++ = (uint32_t)place;
    return 0;
}

static PyObject *add_packed(head_numbers *self, const Py_buffer *packed, Py_ssize_t most)
{
    Py_ssize_t count = packed_count(packed, most);
    placing all = {self, NULL};
    PyObject *found = count < 0 ? NULL : places(count, &all.out);
    if (found != NULL && each_packed(packed, place_next, &all) < 0) Py_CLEAR(found);
    return found;
}

PyDoc_STRVAR(add_packed_doc,
"add_packed(packed, most, /) -> bytes\n\n"
"The same for values that were packed (_packed_heads.c). ValueError if they were not, or are longer than `most` together.");

static PyObject *numbers_add_packed(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer packed;
    Py_ssize_t most;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "add_packed(packed, most)");
        return NULL;
    }
    if ((most = PyLong_AsSsize_t(args[1])) == -1 && PyErr_Occurred()) return NULL;
    if (PyObject_GetBuffer(args[0], &packed, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *found = add_packed((head_numbers *)self, &packed, most);
    PyBuffer_Release(&packed);
    return found;
}

PyDoc_STRVAR(numbers_doc,
"numbers() -> bytes\n\n"
"The number among all values of each value of this round, as numbers of 32 bits. Numbers stay until keep().");

static PyObject *numbers_numbers(PyObject *object, PyObject *none)
{
    (void)none;
    head_numbers *self = (head_numbers *)object;
    return PyBytes_FromStringAndSize((const char *)self->in_round, 4 * (Py_ssize_t)self->round_count);
}

PyDoc_STRVAR(values_doc,
"values() -> (bytes, bytes)\n\nThe values of this round: bounds and data as add() takes them. ValueError: over 2 GiB.");

static PyObject *numbers_values(PyObject *object, PyObject *none)
{
    (void)none;
    head_numbers *self = (head_numbers *)object;
    size_t total = 0;
    for (uint32_t place = 0; place < self->round_count; place++) total += self->values[self->in_round[place]].length;
    if (total > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the values of a round are over 2 GiB");
        return NULL;
    }
    PyObject *bounds = PyBytes_FromStringAndSize(NULL, 4 * ((Py_ssize_t)self->round_count + 1));
    PyObject *data = bounds == NULL ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total), *found = NULL;
    if (data != NULL) {
        uint32_t *ends = (uint32_t *)PyBytes_AS_STRING(bounds), end = *ends++ = 0;
        for (uint32_t place = 0; place < self->round_count; place++) {
            const value *one = &self->values[self->in_round[place]];
            memcpy(PyBytes_AS_STRING(data) + end, self->text + one->begin, one->length);
            *ends++ = end += one->length;
        }
        found = PyTuple_Pack(2, bounds, data);
    }
    Py_XDECREF(bounds);
    Py_XDECREF(data);
    return found;
}

PyDoc_STRVAR(keep_doc,
"keep(numbers, /) -> None\n\n"
"Forget all values but those with these ascending numbers (of 32 bits), which are numbered anew from 0. The round ends.");

static PyObject *numbers_keep(PyObject *object, PyObject *given)
{
    head_numbers *self = (head_numbers *)object;
    Py_buffer numbers;
    if (PyObject_GetBuffer(given, &numbers, PyBUF_SIMPLE) < 0) return NULL;
    size_t count = (size_t)numbers.len / 4, used = 0, least = 0;
    int wrong = numbers.len % 4 != 0;
    for (size_t at = 0; at < count && !wrong; at++) {
        uint32_t number;
        memcpy(&number, (const char *)numbers.buf + 4 * at, 4);
        wrong = number < least || number >= self->count;
        least = (size_t)number + 1;
    }
    if (!wrong) { /* each moves to where it was or before it */
        for (size_t at = 0; at < count; at++) {
            uint32_t number;
            memcpy(&number, (const char *)numbers.buf + 4 * at, 4);
            value one = self->values[number];
            memmove(self->text + used, self->text + one.begin, one.length);
            self->values[at] = (value){one.hash, used, one.length, 0, 0};
            used += one.length;
        }
        self->count = count;
        self->used = used;
        self->round = 0;
        self->generation++;
        forget_round(self);
    }
    PyBuffer_Release(&numbers);
    if (wrong) {
        PyErr_SetString(PyExc_ValueError, "numbers to keep are known ones and ascend");
        return NULL;
    }
    size_t size = FEWEST_SLOTS;
    while (size <= 2 * (count + 1)) size *= 2;
    if (more_slots(self, size) < 0) { /* out of memory, and the old slots are not valid: forget everything */
        self->count = self->used = 0;
        memset(self->slots, 0, (self->mask + 1) * sizeof *self->slots);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *numbers_size(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(((head_numbers *)self)->used);
}

static PyObject *numbers_generation(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(((head_numbers *)self)->generation);
}

static Py_ssize_t numbers_length(PyObject *self)
{
    return (Py_ssize_t)((head_numbers *)self)->count;
}

static PyMethodDef numbers_methods[] = {
    {"begin", numbers_begin, METH_NOARGS, begin_doc},
    {"add", (PyCFunction)(void (*)(void))numbers_add, METH_FASTCALL, add_doc},
    {"add_packed", (PyCFunction)(void (*)(void))numbers_add_packed, METH_FASTCALL, add_packed_doc},
    {"numbers", numbers_numbers, METH_NOARGS, numbers_doc},
    {"values", numbers_values, METH_NOARGS, values_doc},
    {"keep", numbers_keep, METH_O, keep_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef numbers_fields[] = {
    {"size", numbers_size, NULL, "The bytes of all values.", NULL},
    {"generation", numbers_generation, NULL, "How often keep() was called: numbers of another generation mean nothing.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot numbers_slots[] = {
    {Py_tp_doc, "A table of distinct byte strings by number; see head_numbers.py."},
    {Py_tp_new, numbers_new},
    {Py_tp_dealloc, numbers_dealloc},
    {Py_tp_methods, numbers_methods},
    {Py_tp_getset, numbers_fields},
    {Py_sq_length, numbers_length},
    {0, NULL},
};

static PyType_Spec numbers_spec = {
    "gateway.queue_manager.store._rows.HeadNumbers", sizeof(head_numbers), 0, Py_TPFLAGS_DEFAULT, numbers_slots,
};

int add_head_numbers_type(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&numbers_spec);
    int added = type == NULL ? -1 : PyModule_AddObjectRef(module, "HeadNumbers", type);
    Py_XDECREF(type);
    return added;
}
