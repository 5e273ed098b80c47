/*
 * What of OpenSSL is used, by name: functions found in its library at run time, and the numbers of its headers.
 */
#ifndef MQGATE_OPENSSL_H
#define MQGATE_OPENSSL_H

#include <Python.h>
#include <stdint.h>

#include "../built_from.h"

BUILT_FROM_THIS_FILE;

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct bio_st BIO;
typedef struct bio_method_st BIO_METHOD;
typedef struct x509_st X509;
typedef struct x509_store_st X509_STORE;
typedef struct x509_store_ctx_st X509_STORE_CTX;
typedef struct ssl_session_st SSL_SESSION;
typedef struct asn1_string_st ASN1_TIME;

/* result, name, arguments: functions that OpenSSL has had unchanged since 3.0 */
#define FUNCTIONS(X) \
    X(unsigned long, OpenSSL_version_num, (void)) \
    X(const SSL_METHOD *, TLS_server_method, (void)) \
    X(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *)) \
    X(void, SSL_CTX_free, (SSL_CTX *)) \
    X(long, SSL_CTX_ctrl, (SSL_CTX *, int, long, void *)) \
    X(uint64_t, SSL_CTX_set_options, (SSL_CTX *, uint64_t)) \
    X(int, SSL_CTX_set_cipher_list, (SSL_CTX *, const char *)) \
    X(int, SSL_CTX_use_certificate_chain_file, (SSL_CTX *, const char *)) \
    X(int, SSL_CTX_use_PrivateKey_file, (SSL_CTX *, const char *, int)) \
    X(int, SSL_CTX_check_private_key, (const SSL_CTX *)) \
    X(int, SSL_CTX_set_session_id_context, (SSL_CTX *, const unsigned char *, unsigned)) \
    X(int, SSL_CTX_set_num_tickets, (SSL_CTX *, size_t)) \
    X(int, SSL_CTX_set_session_ticket_cb, (SSL_CTX *, int (*)(SSL *, void *), \
      int (*)(SSL *, SSL_SESSION *, const unsigned char *, size_t, int, void *), void *)) \
    X(void, SSL_CTX_set_info_callback, (SSL_CTX *, void (*)(const SSL *, int, int))) \
    X(BIO *, SSL_get_rbio, (const SSL *)) \
    X(X509 *, SSL_SESSION_get0_peer, (SSL_SESSION *)) \
    X(const ASN1_TIME *, X509_get0_notAfter, (const X509 *)) \
    X(int, X509_cmp_current_time, (const ASN1_TIME *)) \
    X(int, SSL_CTX_load_verify_locations, (SSL_CTX *, const char *, const char *)) \
    X(void, SSL_CTX_set_verify, (SSL_CTX *, int, int (*)(int, X509_STORE_CTX *))) \
    X(X509_STORE *, SSL_CTX_get_cert_store, (const SSL_CTX *)) \
    X(int, X509_STORE_load_locations, (X509_STORE *, const char *, const char *)) \
    X(int, X509_STORE_set_flags, (X509_STORE *, unsigned long)) \
    X(SSL *, SSL_new, (SSL_CTX *)) \
    X(void, SSL_free, (SSL *)) \
    X(void, SSL_set_accept_state, (SSL *)) \
    X(void, SSL_set_bio, (SSL *, BIO *, BIO *)) \
    X(int, SSL_do_handshake, (SSL *)) \
    X(int, SSL_read, (SSL *, void *, int)) \
    X(int, SSL_write, (SSL *, const void *, int)) \
    X(int, SSL_shutdown, (SSL *)) \
    X(int, SSL_pending, (const SSL *)) \
    X(int, SSL_get_error, (const SSL *, int)) \
    X(int, SSL_session_reused, (const SSL *)) \
    X(const char *, SSL_get_version, (const SSL *)) \
    X(X509 *, SSL_get1_peer_certificate, (const SSL *)) \
    X(int, i2d_X509, (const X509 *, unsigned char **)) \
    X(void, X509_free, (X509 *)) \
    X(BIO_METHOD *, BIO_meth_new, (int, const char *)) \
    X(int, BIO_meth_set_read, (BIO_METHOD *, int (*)(BIO *, char *, int))) \
    X(int, BIO_meth_set_write, (BIO_METHOD *, int (*)(BIO *, const char *, int))) \
    X(int, BIO_meth_set_ctrl, (BIO_METHOD *, long (*)(BIO *, int, long, void *))) \
    X(BIO *, BIO_new, (const BIO_METHOD *)) \
    X(void, BIO_set_data, (BIO *, void *)) \
    X(void *, BIO_get_data, (BIO *)) \
    X(void, BIO_set_init, (BIO *, int)) \
    X(void, BIO_set_flags, (BIO *, int)) \
    X(void, BIO_clear_flags, (BIO *, int)) \
    X(void, ERR_clear_error, (void)) \
    X(unsigned long, ERR_peek_error, (void)) \
    X(unsigned long, ERR_get_error, (void)) \
    X(const char *, ERR_reason_error_string, (unsigned long))

#define DECLARE(result, name, arguments) static result (*p_##name) arguments;
FUNCTIONS(DECLARE)

#if defined(__has_include)
#if __has_include(<openssl/ssl.h>)
#include <openssl/err.h>
#include <openssl/ssl.h>
#if OPENSSL_VERSION_MAJOR == 3
#define COMPARE(result, name, arguments) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), __typeof__(p_##name)), #name);
FUNCTIONS(COMPARE)
#endif
#endif
#endif

enum { PEM = 1, SET_MODE = 33, SET_CACHE_MODE = 44, SET_MIN_VERSION = 123, FLUSH = 11, SOURCE_SINK = 0x0400 };
enum { MOVING_WRITE_BUFFER = 2, RELEASE_BUFFERS = 0x10, NO_CACHE = 0 };
enum { VERIFY = 1, FAIL_WITHOUT_CERTIFICATE = 2, CRL_CHECK = 4, TLS_1_2 = 0x0303, TLS_1_3 = 0x0304 };
enum { TICKET_SUCCESS = 5, TICKET_SUCCESS_RENEW = 6, IGNORE_TICKET = 1, IGNORE_AND_RENEW = 2, USE_TICKET = 3, USE_AND_RENEW = 4 };
enum { WANT_READ = 2, ZERO_RETURN = 6, READ_AGAIN = 1 | 8, ALL_FLAGS = 15, ACCEPT_LOOP = 0x2001 };
#define OPTIONS ((uint64_t)1 << 30 | (uint64_t)1 << 22 | (uint64_t)1 << 17) /* no renegotiation, our order, no compression */

#endif
