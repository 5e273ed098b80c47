/* A disk that fails on request, for LD_PRELOAD: calls that change files below a directory fail as the order says that lies
   in the mapped file MQGATE_FAULTS. `struct order` is written by failing_calls.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, WRITE, SYNC, RENAME, SIZE, UNLINK, KINDS };

struct order {
    uint32_t armed, kind, code, passed, most, done, failed, dsync;
    uint32_t seen[8];
    char where[256];
};

static volatile struct order *order;

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MQGATE_FAULTS");
    int (*opened)(const char *, int, ...) = next("open");
    int file = path ? opened(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *at = mmap(NULL, sizeof(struct order), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    order = at == MAP_FAILED ? NULL : at;
    close(file);
}

/* Whether a call of this kind fails; `errno` says with what. */
static int fails(int kind, const char *path)
{
    if (!order || !strstr(path, (const char *)order->where) || strstr(path, ".log"))
        return 0;
    __atomic_add_fetch(&order->seen[kind], 1, __ATOMIC_SEQ_CST);
    if (!order->armed || !(order->kind >> kind & 1))
        return 0;
    if (order->passed) {
        order->passed--;
        return 0;
    }
    if (!order->most)
        return 0;
    if (order->most != UINT32_MAX)
        order->most--;
    order->failed++;
    errno = order->code;
    return 1;
}

static int file_fails(int kind, int file)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = order ? readlink(link, path, sizeof path - 1) : -1;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(kind, path);
}

/* A failure may come after all was done. */
#define FAILING(check, call)               \
    do {                                   \
        if (check) {                       \
            int code = errno;              \
            if (order->done)               \
                (void)!(call);             \
            errno = code;                  \
            return -1;                     \
        }                                  \
        return call;                       \
    } while (0)

#define OPENS(name)                                                                  \
    int name(const char *path, int flags, ...)                                       \
    {                                                                                \
        va_list more;                                                                \
        va_start(more, flags);                                                       \
        int mode = va_arg(more, int);                                                \
        va_end(more);                                                                \
        int (*call)(const char *, int, ...) = next(#name);                           \
        if (order && order->dsync && flags & O_DIRECT && strstr(path, (const char *)order->where)) { \
            errno = EINVAL;                                                          \
            return -1;                                                               \
        }                                                                            \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT) && fails(OPEN, path))              \
            return -1;                                                               \
        return call(path, flags, mode);                                              \
    }
OPENS(open)
OPENS(open64)

ssize_t write(int file, const void *data, size_t length)
{
    static ssize_t (*call)(int, const void *, size_t);
    if (!call)
        call = next("write");
    FAILING(file_fails(WRITE, file), call(file, data, length));
}

#define WRITES_AT(name)                                                      \
    ssize_t name(int file, const void *data, size_t length, off_t at)        \
    {                                                                        \
        ssize_t (*call)(int, const void *, size_t, off_t) = next(#name);     \
        FAILING(file_fails(WRITE, file), call(file, data, length, at));      \
    }
WRITES_AT(pwrite)
WRITES_AT(pwrite64)

#define WRITES_PARTS(name)                                                             \
    ssize_t name(int file, const struct iovec *parts, int count, off_t at, int flags)  \
    {                                                                                  \
        ssize_t (*call)(int, const struct iovec *, int, off_t, int) = next(#name);     \
        if (order && order->dsync == 2 && flags) {                                     \
            errno = EOPNOTSUPP;                                                        \
            return -1;                                                                 \
        }                                                                              \
        FAILING(file_fails(WRITE, file), call(file, parts, count, at, flags));         \
    }
WRITES_PARTS(pwritev2)
WRITES_PARTS(pwritev64v2)

#define SYNCS(name)                                      \
    int name(int file)                                   \
    {                                                    \
        int (*call)(int) = next(#name);                  \
        FAILING(file_fails(SYNC, file), call(file));     \
    }
SYNCS(fsync)
SYNCS(fdatasync)

int rename(const char *from, const char *to)
{
    int (*call)(const char *, const char *) = next("rename");
    FAILING(fails(RENAME, to), call(from, to));
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    int (*call)(int, const char *, int, const char *) = next("renameat");
    FAILING(fails(RENAME, to), call(from_folder, from, to_folder, to));
}

int unlink(const char *path)
{
    int (*call)(const char *) = next("unlink");
    FAILING(fails(UNLINK, path), call(path));
}

#define SIZES(name)                                              \
    int name(int file, off_t size)                               \
    {                                                            \
        int (*call)(int, off_t) = next(#name);                   \
        FAILING(file_fails(SIZE, file), call(file, size));       \
    }
SIZES(ftruncate)
SIZES(ftruncate64)

/* Unlike the others it returns its error. */
#define ALLOCATES(name)                                      \
    int name(int file, off_t from, off_t size)               \
    {                                                        \
        int (*call)(int, off_t, off_t) = next(#name);        \
        if (file_fails(SIZE, file))                          \
            return errno;                                    \
        return call(file, from, size);                       \
    }
ALLOCATES(posix_fallocate)
ALLOCATES(posix_fallocate64)
