/*
 * An extension contains the sources it was built from, and is not loaded when they have changed since.
 *
 * Each .c and .h file of an extension has a line BUILT_FROM_THIS_FILE, which has the assembler embed the bytes of that
 * file. The init function begins with `if (check_sources() < 0) return NULL;`, which compares them with the files on
 * disk: ImportError says what to type. A file that is not there is not compared, so an installation may leave its
 * sources out. Where objects are not ELF nothing is embedded and nothing is compared.
 *
 * An extension and the Python around it are changed together. One that is older may still load and fail much later, or
 * be passed over for the slower Python code without a word.
 */
#ifndef MQGATE_BUILT_FROM_H
#define MQGATE_BUILT_FROM_H

#include <Python.h> /* defines _GNU_SOURCE, which dladdr needs */

#if defined(__ELF__) && defined(__GNUC__)
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One file: its path as the compiler was given it, and its bytes. The assembler writes the record, three addresses, into
   a section that the linker delimits by two symbols of the section's name. */
typedef struct {
    const char *path, *begin, *end;
} built_from_file;

#if UINTPTR_MAX > 0xffffffff
#define BUILT_FROM_ADDRESSES ".balign 8\n.quad 771b, 772b, 773b\n"
#else
#define BUILT_FROM_ADDRESSES ".balign 4\n.long 771b, 772b, 773b\n"
#endif

#define BUILT_FROM_THIS_FILE \
    __asm__(".pushsection .rodata.built_from,\"a\"\n" \
            "771: .asciz \"" __FILE__ "\"\n" \
            "772: .incbin \"" __FILE__ "\"\n" \
            "773: .byte 0\n" \
            ".popsection\n" \
            ".pushsection built_from,\"aw\"\n" \
            BUILT_FROM_ADDRESSES \
            ".popsection\n")

extern const built_from_file __start_built_from[] __attribute__((visibility("hidden")));
extern const built_from_file __stop_built_from[] __attribute__((visibility("hidden")));

/* The part of a path from the package on; the path itself when it does not lead through the package. */
static inline const char *within_package(const char *path)
{
    const char *found = path, *at = path;
    while ((at = strstr(at, "gateway/")) != NULL) {
        if (at == path || at[-1] == '/') found = at;
        at++;
    }
    return found;
}

/* Whether the file has these bytes and no others; true for a file that cannot be read. */
static inline int has_bytes(const char *path, const char *at, const char *end)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 1;
    char chunk[16384];
    size_t count;
    while ((count = fread(chunk, 1, sizeof chunk, file)) > 0) {
        if ((size_t)(end - at) < count || memcmp(at, chunk, count) != 0) break;
        at += count;
    }
    fclose(file);
    return count == 0 && at == end;
}

/* -1 with ImportError set when a source has changed since this extension was built. Once for an extension, in its init. */
static inline int check_sources(void)
{
    Dl_info extension;
    if (dladdr((const void *)__start_built_from, &extension) == 0) return 0;
    const char *own = within_package(extension.dli_fname);
    int root = (int)(own - extension.dli_fname);
    for (const built_from_file *file = __start_built_from; file < __stop_built_from; file++) {
        char path[4096];
        const char *name = within_package(file->path);
        int length = snprintf(path, sizeof path, "%.*s%s", root, extension.dli_fname, name);
        if (length < 0 || (size_t)length >= sizeof path || has_bytes(path, file->begin, file->end)) continue;
        const char *last = strrchr(name, '/');
        PyObject *text = PyUnicode_FromFormat("%s was built from another %s: type python deploy/install.py --editable",
                                              own, last == NULL ? name : last + 1);
        PyObject *where = PyUnicode_DecodeFSDefault(extension.dli_fname);
        if (text != NULL && where != NULL) PyErr_SetImportError(text, NULL, where);
        Py_XDECREF(text);
        Py_XDECREF(where);
        return -1;
    }
    return 0;
}

#else
#define BUILT_FROM_THIS_FILE struct built_from_nothing
static inline int check_sources(void) { return 0; }
#endif

BUILT_FROM_THIS_FILE;

#endif
