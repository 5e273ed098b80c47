/*
 * TLS on the server's side over OpenSSL, without sockets: bytes in, bytes out, a whole chunk in a call.
 *
 * The `ssl` module does the same in `tls_session.py`, with which the tests compare this. Here a connection has no
 * buffers of its own (an idle one is OpenSSL's state and nothing else), and handshakes, which cost a third of a
 * millisecond each, are done many in a call without the interpreter's lock.
 *
 * OpenSSL's library is opened at run time, the one that the `ssl` module uses on the usual platforms: neither its
 * headers nor its development package are needed to build this. Where the headers are there, the compiler compares our
 * declarations with theirs.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "../built_from.h"
#include "_openssl.h"

BUILT_FROM_THIS_FILE;

enum { LONGEST = 64 * 1024, MOST_RECORD = 16 * 1024 + 512, MOST_TEXT = 256 };

/* Each new key takes as long as ten records of data, and 27 bytes of the peer: so many steps, of which an update is three
 * at most, in so many seconds. */
enum { MOST_STEPS = 3 * 32, STEPS_SECONDS = 10 };

/* What one call reads from and writes to. */
typedef struct {
    const char *in;
    size_t left;
    char *out;
    size_t length, room;
    int grown;                   /* out is not the caller's any more */
} transfer;

typedef struct {
    PyObject_HEAD
    SSL_CTX *context;
} context;

typedef struct {
    PyObject_HEAD
    SSL *ssl;
    transfer *io;                /* of the call that is running, in whatever thread */
    PyObject *kept;              /* the result of decrypting that whole() could not return */
    uint32_t steps_since;
    uint8_t established, broken, steps;
} session;

static BIO_METHOD *method;
static PyTypeObject session_type;

/* -- OpenSSL reads from the call's input and writes to its output -- */

static int bio_read(BIO *bio, char *to, int most)
{
    session *self = p_BIO_get_data(bio);
    transfer *io = self->io;
    p_BIO_clear_flags(bio, ALL_FLAGS);
    if (io == NULL || io->left == 0) {
        p_BIO_set_flags(bio, READ_AGAIN);
        return -1;
    }
    size_t length = io->left < (size_t)most ? io->left : (size_t)most;
    memcpy(to, io->in, length);
    io->in += length;
    io->left -= length;
    return (int)length;
}

static int bio_write(BIO *bio, const char *from, int length)
{
    session *self = p_BIO_get_data(bio);
    transfer *io = self->io;
    p_BIO_clear_flags(bio, ALL_FLAGS);
    if (io == NULL) return -1;
    if (io->length + (size_t)length > io->room) {
        size_t room = 2 * (io->length + (size_t)length);
        char *more = io->grown ? realloc(io->out, room) : malloc(room);
        if (more == NULL) return -1;
        if (!io->grown) memcpy(more, io->out, io->length);
        io->out = more;
        io->room = room;
        io->grown = 1;
    }
    memcpy(io->out + io->length, from, (size_t)length);
    io->length += (size_t)length;
    return length;
}

static long bio_ctrl(BIO *Py_UNUSED(bio), int command, long Py_UNUSED(number), void *Py_UNUSED(pointer))
{
    return command == FLUSH;
}

/* A step of a handshake. Those after the first one are updates of keys: beyond their bound nothing more is read. */
static void stepped(const SSL *ssl, int where, int Py_UNUSED(result))
{
    if (where != ACCEPT_LOOP) return;
    session *self = p_BIO_get_data(p_SSL_get_rbio(ssl));
    if (!self->established || self->steps > MOST_STEPS) return;
    uint32_t now = (uint32_t)time(NULL);
    if (now - self->steps_since >= STEPS_SECONDS) {
        self->steps_since = now;
        self->steps = 0;
    }
    if (++self->steps > MOST_STEPS && self->io != NULL) self->io->left = 0;
}

/* What OpenSSL says is wrong, in its words. */
static void errors(char *text)
{
    size_t length = 0;
    unsigned long code;
    text[0] = 0;
    while ((code = p_ERR_get_error()) != 0) {
        const char *reason = p_ERR_reason_error_string(code);
        if (reason == NULL) continue;
        int more = snprintf(text + length, MOST_TEXT - length, "%s%s", length ? "; " : "", reason);
        if (more < 0 || length + (size_t)more >= MOST_TEXT) break;
        length += (size_t)more;
    }
    p_ERR_clear_error();
}

/* What others have left behind in this thread would be taken for this call's. There is seldom anything, and looking costs
 * less than clearing. */
static void forget_errors(void)
{
    if (p_ERR_peek_error() != 0) p_ERR_clear_error();
}

/* -- what is done to one connection, with or without the interpreter's lock -- */

enum { GOES_ON, CLOSED_BY_PEER, FAILED };

/* The result of a call that was not successful; the text says why when it is FAILED. */
static int unsuccessful(session *self, int result, char *text)
{
    int error = p_SSL_get_error(self->ssl, result);
    if (error == WANT_READ && self->steps <= MOST_STEPS) return GOES_ON;
    if (error == ZERO_RETURN) return CLOSED_BY_PEER;
    errors(text);
    if (text[0] == 0) strcpy(text, error == WANT_READ ? "too many key updates" : "the handshake was broken off");
    self->broken = 1;
    return FAILED;
}

/* Decrypt what there is. */
static int read_all(session *self, char *to, size_t room, size_t *length, char *text)
{
    *length = 0;
    while (*length < room) {
        int result = p_SSL_read(self->ssl, to + *length, (int)(room - *length));
        if (result <= 0) return unsuccessful(self, result, text);
        *length += (size_t)result;
        if (self->io->left == 0 && p_SSL_pending(self->ssl) == 0) break; /* spares the call that finds nothing */
    }
    return GOES_ON;
}

/* One connection's part of handshakes(). */
typedef struct {
    session *self;
    transfer io;
    char *plain;
    size_t plain_length;
    int state;
    char text[MOST_TEXT];
} step;

static void proceed(step *one)
{
    session *self = one->self;
    forget_errors();
    if (!self->established) {
        int result = p_SSL_do_handshake(self->ssl);
        if (result == 1) self->established = 1;
        else one->state = unsuccessful(self, result, one->text);
    }
    if (self->established && one->io.left > 0) { /* sent at once with the end of the handshake */
        size_t room = one->io.left;
        one->plain = malloc(room);
        one->state = one->plain == NULL ? FAILED : read_all(self, one->plain, room, &one->plain_length, one->text);
    }
}

/* -- Python's side -- */

/* None: it goes on; otherwise why it does not, empty when the peer has closed it. */
static PyObject *why(int state, const char *text)
{
    if (state == GOES_ON) Py_RETURN_NONE;
    return PyUnicode_DecodeLatin1(text, state == FAILED ? (Py_ssize_t)strlen(text) : 0, NULL);
}

static int usable(session *self)
{
    if (self->io == NULL) return 1;
    PyErr_SetString(PyExc_RuntimeError, "a handshake is under way in another thread");
    return 0;
}

PyDoc_STRVAR(handshakes_doc,
"handshakes(steps) -> [(done, answer, plain, end), ...]\n\n"
"Go on with handshakes, [(session, bytes), ...], without the interpreter's lock. end: None, or why the connection is over ('': its peer says so).");

static PyObject *handshakes(PyObject *Py_UNUSED(module), PyObject *all)
{
    if (!PyList_CheckExact(all)) return PyErr_Format(PyExc_TypeError, "a list of (session, bytes)");
    Py_ssize_t count = PyList_GET_SIZE(all);
    PyObject *results = NULL, *held = PyList_AsTuple(all); /* keeps them while the lock is not held */
    step *steps = PyMem_Calloc(count ? (size_t)count : 1, sizeof(step));
    if (steps == NULL || held == NULL) goto done;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *found;
        if (!PyTuple_CheckExact(PyTuple_GET_ITEM(held, at))) {
            PyErr_SetString(PyExc_TypeError, "a step is a session and bytes");
            goto done;
        }
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(held, at), "O!y#", &session_type, &found, &steps[at].io.in,
                              (Py_ssize_t *)&steps[at].io.left) || !usable((session *)found)) goto done;
        steps[at].self = (session *)found;
        ((session *)found)->io = &steps[at].io;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < count; at++) proceed(&steps[at]);
    Py_END_ALLOW_THREADS
    results = PyList_New(count);
    for (Py_ssize_t at = 0; results != NULL && at < count; at++) {
        step *one = &steps[at];
        PyObject *result = Py_BuildValue(
            "Oy#y#N", one->self->established ? Py_True : Py_False, one->io.out ? one->io.out : "",
            (Py_ssize_t)one->io.length, one->plain ? one->plain : "", (Py_ssize_t)one->plain_length,
            why(one->state, one->text));
        if (result == NULL) Py_CLEAR(results);
        else PyList_SET_ITEM(results, at, result);
    }
done:
    for (Py_ssize_t at = 0; steps != NULL && at < count; at++) {
        if (steps[at].self != NULL) steps[at].self->io = NULL;
        free(steps[at].io.grown ? steps[at].io.out : NULL);
        free(steps[at].plain);
    }
    PyMem_Free(steps);
    Py_XDECREF(held);
    return results;
}

/* Decrypt what has arrived. Returned is the plain text where that is all there is, otherwise None: the result is kept. */
static PyObject *decrypted(session *self, PyObject *data)
{
    static char plain[LONGEST + MOST_RECORD]; /* filled and copied under the interpreter's lock */
    size_t size = (size_t)PyBytes_GET_SIZE(data), length = 0, room = sizeof plain;
    char *to = plain, small[512], text[MOST_TEXT] = "";
    if (size > LONGEST && (to = malloc(room = size + MOST_RECORD)) == NULL) return PyErr_NoMemory();
    transfer io = {PyBytes_AS_STRING(data), size, small, 0, sizeof small, 0};
    int state = FAILED;
    if (self->established && !self->broken) {
        self->io = &io;
        forget_errors();
        state = read_all(self, to, room, &length, text);
        self->io = NULL;
    }
    PyObject *result = NULL;
    if (state == GOES_ON && io.length == 0) result = PyBytes_FromStringAndSize(to, (Py_ssize_t)length);
    else {
        self->kept = Py_BuildValue("y#y#N", to, (Py_ssize_t)length, io.out, (Py_ssize_t)io.length, why(state, text));
        if (self->kept != NULL) result = Py_NewRef(Py_None);
    }
    if (io.grown) free(io.out);
    if (to != plain) free(to);
    return result;
}

static int records(session *self, PyObject *data)
{
    if (PyBytes_Check(data)) return usable(self);
    PyErr_SetString(PyExc_TypeError, "records are bytes");
    return 0;
}

PyDoc_STRVAR(whole_doc,
"whole(data) -> plain, where nothing is to be answered and the connection goes on; None: decrypt has to be called.");

static PyObject *whole(PyObject *object, PyObject *data)
{
    session *self = (session *)object;
    if (!records(self, data)) return NULL;
    return self->kept == NULL ? decrypted(self, data) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(decrypt_doc,
"decrypt(data) -> (plain, answer, end): end is None, or why the connection is over. After whole: of the same data.");

static PyObject *decrypt(PyObject *object, PyObject *data)
{
    session *self = (session *)object;
    if (!records(self, data)) return NULL;
    PyObject *plain = self->kept == NULL ? decrypted(self, data) : Py_NewRef(Py_None);
    if (plain == NULL) return NULL;
    if (plain != Py_None) return Py_BuildValue("Ny#O", plain, "", (Py_ssize_t)0, Py_None);
    Py_DECREF(plain);
    PyObject *kept = self->kept;
    self->kept = NULL;
    return kept;
}

/* Have OpenSSL write: data, or its last word where there is none. */
static PyObject *written(session *self, const char *data, size_t size)
{
    char small[4096], text[MOST_TEXT];
    transfer io = {NULL, 0, small, 0, sizeof small, 0};
    if (!usable(self)) return NULL;
    if (!self->established || self->broken) return PyBytes_FromStringAndSize(NULL, 0);
    size_t room = size + 96 * (size / (16 * 1024) + 1);
    if (room > sizeof small) {
        if ((io.out = malloc(room)) == NULL) return PyErr_NoMemory();
        io.room = room;
        io.grown = 1;
    }
    self->io = &io;
    forget_errors();
    int result = data == NULL ? p_SSL_shutdown(self->ssl) : p_SSL_write(self->ssl, data, (int)size);
    if (data != NULL && result <= 0) unsuccessful(self, result, text);
    self->io = NULL;
    PyObject *made = PyBytes_FromStringAndSize(io.out, (Py_ssize_t)io.length);
    if (io.grown) free(io.out);
    return made;
}

PyDoc_STRVAR(encrypt_doc, "encrypt(data) -> bytes: records; nothing before the handshake is done or after an error.");

static PyObject *encrypt(PyObject *object, PyObject *data)
{
    if (!PyBytes_Check(data) || PyBytes_GET_SIZE(data) > INT_MAX)
        return PyErr_Format(PyExc_TypeError, "what is encrypted is bytes, of at most 2 GiB");
    if (PyBytes_GET_SIZE(data) == 0) return Py_NewRef(data);
    return written((session *)object, PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data));
}

PyDoc_STRVAR(close_doc, "close() -> bytes: the alert close_notify.");

static PyObject *close_session(PyObject *object, PyObject *Py_UNUSED(none))
{
    return written((session *)object, NULL, 0);
}

PyDoc_STRVAR(certificate_doc, "certificate() -> bytes: the peer's, as DER; empty if it has shown none.");

static PyObject *certificate(PyObject *object, PyObject *Py_UNUSED(none))
{
    if (!usable((session *)object)) return NULL;
    X509 *found = p_SSL_get1_peer_certificate(((session *)object)->ssl);
    int length = found == NULL ? 0 : p_i2d_X509(found, NULL);
    PyObject *made = PyBytes_FromStringAndSize(NULL, length < 0 ? 0 : length);
    if (made != NULL && length > 0) {
        unsigned char *to = (unsigned char *)PyBytes_AS_STRING(made);
        p_i2d_X509(found, &to);
    }
    if (found != NULL) p_X509_free(found);
    return made;
}

PyDoc_STRVAR(resumed_doc, "resumed() -> bool: whether the handshake took up an earlier session.");

static PyObject *resumed(PyObject *object, PyObject *Py_UNUSED(none))
{
    if (!usable((session *)object)) return NULL;
    return PyBool_FromLong(p_SSL_session_reused(((session *)object)->ssl));
}

PyDoc_STRVAR(version_doc, "version() -> str: the protocol's, as OpenSSL calls it.");

static PyObject *version(PyObject *object, PyObject *Py_UNUSED(none))
{
    if (!usable((session *)object)) return NULL;
    return PyUnicode_FromString(p_SSL_get_version(((session *)object)->ssl));
}

static void session_dealloc(PyObject *object)
{
    session *self = (session *)object;
    if (self->ssl != NULL) p_SSL_free(self->ssl); /* and with it the BIO */
    Py_XDECREF(self->kept);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef session_methods[] = {
    {"whole", whole, METH_O, whole_doc},
    {"decrypt", decrypt, METH_O, decrypt_doc},
    {"encrypt", encrypt, METH_O, encrypt_doc},
    {"close", close_session, METH_NOARGS, close_doc},
    {"certificate", certificate, METH_NOARGS, certificate_doc},
    {"resumed", resumed, METH_NOARGS, resumed_doc},
    {"version", version, METH_NOARGS, version_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject session_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gateway.net._tls.Session",
    .tp_basicsize = sizeof(session),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = PyDoc_STR("One connection."),
    .tp_dealloc = session_dealloc,
    .tp_methods = session_methods,
};

/* -- the context of a listener -- */

static int fail(void)
{
    char text[MOST_TEXT];
    errors(text);
    PyErr_SetString(PyExc_ValueError, text);
    return -1;
}

/* Whether an earlier session is taken up. Nothing is verified then: so one of a certificate that has expired is not, nor
 * any when `until` is over, the time at which an authority or a revocation list ends. The handshake is done in full. */
static int ticket_found(SSL *Py_UNUSED(ssl), SSL_SESSION *found, const unsigned char *Py_UNUSED(name),
                        size_t Py_UNUSED(length), int status, void *until)
{
    if (status != TICKET_SUCCESS && status != TICKET_SUCCESS_RENEW) return IGNORE_AND_RENEW;
    X509 *shown = p_SSL_SESSION_get0_peer(found);
    int over = (time_t)(intptr_t)until <= time(NULL);
    if (over || (shown != NULL && p_X509_cmp_current_time(p_X509_get0_notAfter(shown)) <= 0)) return IGNORE_AND_RENEW;
    return status == TICKET_SUCCESS ? USE_TICKET : USE_AND_RENEW;
}

/* What clients have to show. */
static int verify_clients(SSL_CTX *made, const char *authorities, int required, const char *revoked, long long until)
{
    p_SSL_CTX_set_session_ticket_cb(made, NULL, ticket_found, (void *)(intptr_t)until);
    if (!p_SSL_CTX_load_verify_locations(made, authorities, NULL)) return fail();
    p_SSL_CTX_set_verify(made, required ? VERIFY | FAIL_WITHOUT_CERTIFICATE : VERIFY, NULL);
    if (revoked == NULL) return 0;
    X509_STORE *store = p_SSL_CTX_get_cert_store(made);
    if (!p_X509_STORE_load_locations(store, revoked, NULL) || !p_X509_STORE_set_flags(store, CRL_CHECK)) return fail();
    return 0;
}

PyDoc_STRVAR(context_doc,
"Context(certificate, key, ciphers, only_1_3, client_ca, required, crl, until): what all connections of a listener share.\n\n"
"The names are those of PEM files; client_ca and crl may be None. From `until` on, in seconds since 1970, no session of\n"
"clients whose certificates are looked at is taken up. ValueError says what OpenSSL does not like.");

static int context_init(PyObject *object, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    context *self = (context *)object;
    const char *chain, *key, *ciphers, *authorities, *revoked;
    int only_1_3, required;
    long long until;
    if (!PyArg_ParseTuple(args, "sssizpzL", &chain, &key, &ciphers, &only_1_3, &authorities, &required, &revoked, &until)) return -1;
    p_ERR_clear_error();
    SSL_CTX *made = p_SSL_CTX_new(p_TLS_server_method());
    if (made == NULL) return fail();
    if (self->context != NULL) p_SSL_CTX_free(self->context);
    self->context = made;
    p_SSL_CTX_set_options(made, OPTIONS);
    p_SSL_CTX_set_info_callback(made, stepped);
    p_SSL_CTX_ctrl(made, SET_MIN_VERSION, only_1_3 ? TLS_1_3 : TLS_1_2, NULL);
    p_SSL_CTX_ctrl(made, SET_MODE, MOVING_WRITE_BUFFER | RELEASE_BUFFERS, NULL);
    p_SSL_CTX_ctrl(made, SET_CACHE_MODE, NO_CACHE, NULL); /* sessions are resumed with tickets */
    p_SSL_CTX_set_num_tickets(made, 1);
    if (!p_SSL_CTX_set_session_id_context(made, (const unsigned char *)"mqgate", 6) ||
        !p_SSL_CTX_set_cipher_list(made, ciphers) || p_SSL_CTX_use_certificate_chain_file(made, chain) != 1 ||
        p_SSL_CTX_use_PrivateKey_file(made, key, PEM) != 1 || p_SSL_CTX_check_private_key(made) != 1) return fail();
    return authorities == NULL ? 0 : verify_clients(made, authorities, required, revoked, until);
}

PyDoc_STRVAR(session_doc, "session() -> Session: for a new connection.");

static PyObject *new_session(PyObject *object, PyObject *Py_UNUSED(none))
{
    session *made = PyObject_New(session, &session_type);
    if (made == NULL) return NULL;
    made->io = NULL;
    made->kept = NULL;
    made->established = made->broken = made->steps = 0;
    made->steps_since = 0;
    made->ssl = p_SSL_new(((context *)object)->context);
    BIO *bio = made->ssl == NULL ? NULL : p_BIO_new(method);
    if (bio == NULL) {
        p_ERR_clear_error();
        Py_DECREF(made);
        return PyErr_NoMemory();
    }
    p_BIO_set_data(bio, made);
    p_BIO_set_init(bio, 1);
    p_SSL_set_bio(made->ssl, bio, bio);
    p_SSL_set_accept_state(made->ssl);
    return (PyObject *)made;
}

static void context_dealloc(PyObject *object)
{
    if (((context *)object)->context != NULL) p_SSL_CTX_free(((context *)object)->context);
    Py_TYPE(object)->tp_free(object);
}

static PyMethodDef context_methods[] = {
    {"session", new_session, METH_NOARGS, session_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject context_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "gateway.net._tls.Context",
    .tp_basicsize = sizeof(context),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = context_doc,
    .tp_new = PyType_GenericNew,
    .tp_init = context_init,
    .tp_dealloc = context_dealloc,
    .tp_methods = context_methods,
};

static PyMethodDef methods[] = {
    {"handshakes", handshakes, METH_O, handshakes_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "gateway.net._tls", "TLS over OpenSSL; see the source.", -1, methods, NULL, NULL, NULL, NULL,
};

/* ModuleNotFoundError, as without a compiler: the `ssl` module is used then. */
static int open_library(void)
{
    const char *names[] = {"libssl.so.3", "libssl.3.dylib"};
    void *library = NULL;
    for (size_t at = 0; library == NULL && at < sizeof names / sizeof *names; at++) library = dlopen(names[at], RTLD_NOW);
    if (library == NULL) {
        PyErr_SetString(PyExc_ModuleNotFoundError, "OpenSSL 3 is not installed");
        return -1;
    }
#define FIND(result, name, arguments) \
    *(void **)&p_##name = dlsym(library, #name); \
    if (p_##name == NULL) { \
        PyErr_SetString(PyExc_ModuleNotFoundError, "OpenSSL has no " #name); \
        return -1; \
    }
    FUNCTIONS(FIND)
    method = p_BIO_meth_new(SOURCE_SINK | 99, "mqgate");
    if (method == NULL || !p_BIO_meth_set_read(method, bio_read) || !p_BIO_meth_set_write(method, bio_write) ||
        !p_BIO_meth_set_ctrl(method, bio_ctrl)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

PyMODINIT_FUNC PyInit__tls(void)
{
    if (check_sources() < 0 || open_library() < 0) return NULL;
    if (PyType_Ready(&session_type) < 0 || PyType_Ready(&context_type) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (PyModule_AddObjectRef(made, "Context", (PyObject *)&context_type) < 0 ||
                         PyModule_AddObjectRef(made, "Session", (PyObject *)&session_type) < 0)) Py_CLEAR(made);
    return made;
}
