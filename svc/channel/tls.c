/* Sessions of TLS 1.3 with an external pre-shared key, over memory buffers. Only this file uses
 * OpenSSL. Owns the sessions and two contexts. Uses no sockets, trusts no certificates, resumes no
 * sessions, and leaves no entries in the calling thread's error queue (README, T1 to T6). */
#include "svc/channel/tls.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A key is bound to the hash function of its suite (RFC 8446, 4.2.11). Only one suite, with
 * SHA-256, is therefore used. */
#define SUITE "TLS_AES_128_GCM_SHA256"
#define HELLO_BYTES 3

struct tls {
    SSL *ssl;
    BIO *in, *out; /* buffers of the session, which frees them */
    struct key key;
    key_find_fn find;
    void *context;
    /* server: result of `find`; 1: `find` was not called, because the peer has offered no key */
    int found;
    char failure[ERR_TEXT_BYTES];
};

/* --- contexts: one for each role, created once, never freed --- */

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static SSL_CTX *client_context, *server_context;

/* Returns a session of the only suite with this key. */
static SSL_SESSION *tls_key_session(SSL *ssl, const uint8_t *secret)
{
    static const unsigned char suite[] = {0x13, 0x01}; /* number of SUITE in messages */
    SSL_SESSION *session = SSL_SESSION_new();
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    if (session && cipher && SSL_SESSION_set1_master_key(session, secret, KEY_SECRET_BYTES) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int tls_offer_key(SSL *ssl, const EVP_MD *hash, const unsigned char **ret_name,
                         size_t *ret_name_bytes, SSL_SESSION **ret_session)
{
    struct tls *tls = SSL_get_app_data(ssl);
    *ret_session = NULL;
    if (hash && EVP_MD_get_type(hash) != NID_sha256)
        /* another suite: the handshake continues without a key, and both ends then refuse the
         * handshake */
        return 1;
    *ret_session = tls_key_session(ssl, tls->key.secret);
    *ret_name = (const unsigned char *)tls->key.tenant;
    *ret_name_bytes = strlen(tls->key.tenant);
    return *ret_session != NULL;
}

/* Finds the key of a name. For an unknown name a random key is used. The peer is then refused as
 * for a wrong key, and cannot find out which names exist (T4). */
static int tls_check_key(SSL *ssl, const unsigned char *name, size_t name_bytes,
                         SSL_SESSION **ret_session)
{
    struct tls *tls = SSL_get_app_data(ssl);
    struct key key = {0};
    tls->found = -ENOENT;
    if (name_bytes <= KEY_TENANT_BYTES_MAX) {
        memcpy(tls->key.tenant, name, name_bytes);
        tls->key.tenant[name_bytes] = '\0';
        if (strlen(tls->key.tenant) == name_bytes && key_tenant_is_valid(tls->key.tenant))
            tls->found = tls->find(tls->context, tls->key.tenant, &key);
        else
            snprintf(tls->key.tenant, sizeof tls->key.tenant, "(no name)");
    }
    if (tls->found < 0 && getrandom(key.secret, sizeof key.secret, 0) != sizeof key.secret)
        return 0;
    *ret_session = tls_key_session(ssl, key.secret);
    key_forget(&key);
    return *ret_session != NULL;
}

static SSL_CTX *tls_create_context(bool is_server)
{
    /* The program may exit while a thread of this library still runs, so OpenSSL must free nothing
     * at exit. */
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    SSL_CTX *context = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
    if (!context)
        return NULL;
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (is_server) {
        SSL_CTX_set_psk_find_session_callback(context, tls_check_key);
    } else {
        SSL_CTX_set_psk_use_session_callback(context, tls_offer_key);
        /* No certificate is known, so every certificate is refused. */
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    }
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
        SSL_CTX_set_ciphersuites(context, SUITE) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1)
        return context;
    SSL_CTX_free(context);
    return NULL;
}

static SSL_CTX *tls_get_context(bool is_server)
{
    SSL_CTX **context = is_server ? &server_context : &client_context;
    pthread_mutex_lock(&context_lock);
    if (!*context)
        *context = tls_create_context(is_server);
    pthread_mutex_unlock(&context_lock);
    return *context;
}

/* --- life --- */

int tls_is_hello(const uint8_t *bytes, size_t count)
{
    /* TLS begins with a record of type handshake, version 3.1 to 3.4. The first frame of a plain
     * connection begins with these bytes only if it has 65,536 bytes or more (T2). */
    if (count >= 1 && bytes[0] != 0x16)
        return 0;
    if (count >= 2 && bytes[1] != 3)
        return 0;
    if (count < HELLO_BYTES)
        return -EAGAIN;
    return bytes[2] >= 1 && bytes[2] <= 4;
}

static int tls_create(bool is_server, struct tls **ret_tls)
{
    SSL_CTX *context = tls_get_context(is_server);
    struct tls *tls = calloc(1, sizeof *tls);
    if (tls && context)
        tls->ssl = SSL_new(context);
    if (tls && tls->ssl) {
        tls->in = BIO_new(BIO_s_mem());
        tls->out = BIO_new(BIO_s_mem());
    }
    if (!tls || !tls->in || !tls->out) {
        if (tls) {
            BIO_free(tls->in);
            BIO_free(tls->out);
            SSL_free(tls->ssl);
        }
        free(tls);
        ERR_clear_error();
        return -ENOMEM;
    }
    tls->found = 1;
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    SSL_set_app_data(tls->ssl, tls);
    if (is_server)
        SSL_set_accept_state(tls->ssl);
    else
        SSL_set_connect_state(tls->ssl);
    *ret_tls = tls;
    return 0;
}

int tls_create_client(const struct key *key, struct tls **ret_tls)
{
    struct tls *tls;
    int error = tls_create(false, &tls);
    if (error < 0)
        return error;
    tls->key = *key;
    *ret_tls = tls;
    return 0;
}

int tls_create_server(key_find_fn find, void *context, struct tls **ret_tls)
{
    struct tls *tls;
    int error = tls_create(true, &tls);
    if (error < 0)
        return error;
    tls->find = find;
    tls->context = context;
    *ret_tls = tls;
    return 0;
}

void tls_destroy(struct tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    key_forget(&tls->key);
    free(tls);
}

/* --- failures --- */

__attribute__((format(printf, 3, 4))) static int tls_fail(struct tls *tls, int code,
                                                          const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(tls->failure, sizeof tls->failure, format, arguments);
    va_end(arguments);
    ERR_clear_error();
    return code;
}

static const char *tls_reason_text(unsigned long error)
{
    const char *text = ERR_reason_error_string(error);
    return text ? text : "unknown error";
}

static bool tls_is_library_error(unsigned long error, int reason)
{
    return ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) == reason;
}

/* Returns whether the error is an alert with which a server refuses a key. */
static bool tls_is_refusal(unsigned long error)
{
    static const int alerts[] = {SSL_AD_HANDSHAKE_FAILURE, SSL_AD_ILLEGAL_PARAMETER,
                                 SSL_AD_DECRYPT_ERROR, SSL_AD_ACCESS_DENIED,
                                 SSL_AD_UNKNOWN_PSK_IDENTITY};
    for (size_t i = 0; i < sizeof alerts / sizeof *alerts; i++)
        if (tls_is_library_error(error, SSL_AD_REASON_OFFSET + alerts[i]))
            return true;
    return false;
}

static int tls_client_refused(struct tls *tls, unsigned long error)
{
    if (tls_is_refusal(error))
        return tls_fail(tls, -EKEYREJECTED,
                        "the key of tenant %s was refused: the key is mistyped, was revoked, or is "
                        "for another service; compare the key with the output of `gradpool tenant "
                        "add`, or ask the operator for a new one",
                        tls->key.tenant);
    return tls_fail(
        tls, -EPROTO,
        "the TLS handshake failed: %s; check that the endpoint is gradpool's, of the same version",
        tls_reason_text(error));
}

static int tls_server_refused(struct tls *tls, unsigned long error)
{
    if (tls->found == -EKEYREVOKED)
        return tls_fail(tls, -EKEYREJECTED, "connection refused: tenant %s was revoked",
                        tls->key.tenant);
    if (tls->found < 0)
        return tls_fail(tls, -EKEYREJECTED, "connection refused: there is no tenant %s",
                        tls->key.tenant);
    if (tls_is_library_error(error, SSL_R_BINDER_DOES_NOT_VERIFY))
        return tls_fail(tls, -EKEYREJECTED, "connection refused: the key is not that of tenant %s",
                        tls->key.tenant);
    if (tls->found > 0 && (tls_is_library_error(error, SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM) ||
                           tls_is_library_error(error, SSL_R_NO_SHARED_CIPHER)))
        return tls_fail(tls, -ENOKEY, "connection refused: the peer speaks TLS, but has no key");
    return tls_fail(tls, -EPROTO, "the TLS handshake failed: %s", tls_reason_text(error));
}

/* --- bytes --- */

int tls_put(struct tls *tls, const uint8_t *bytes, size_t count)
{
    ERR_clear_error();
    if (count == 0 || BIO_write(tls->in, bytes, (int)count) == (int)count)
        return 0;
    return tls_fail(tls, -ENOMEM, "this process has no memory for TLS; raise its memory limit");
}

size_t tls_pending(const struct tls *tls) { return BIO_ctrl_pending(tls->out); }

size_t tls_take(struct tls *tls, uint8_t *bytes, size_t count)
{
    int taken = BIO_read(tls->out, bytes, (int)count);
    ERR_clear_error();
    return taken > 0 ? (size_t)taken : 0;
}

int tls_handshake(struct tls *tls)
{
    ERR_clear_error();
    int r = SSL_do_handshake(tls->ssl);
    if (r != 1) {
        int why = SSL_get_error(tls->ssl, r);
        unsigned long error = ERR_peek_error();
        if (why == SSL_ERROR_WANT_READ)
            return -EAGAIN;
        return SSL_is_server(tls->ssl) ? tls_server_refused(tls, error)
                                       : tls_client_refused(tls, error);
    }
    /* OpenSSL calls a session "reused" if its key was accepted. Only this proves the key (T3). */
    if (SSL_session_reused(tls->ssl) != 1)
        return tls_fail(tls, -EKEYREJECTED,
                        "connection refused: the peer has not proved the key in the TLS handshake");
    if (!SSL_is_server(tls->ssl))
        key_forget(&tls->key);
    return 0;
}

/* Returns the error of an SSL_read() or SSL_write() that has moved no byte. */
static int tls_moved_nothing(struct tls *tls, int error)
{
    int why = SSL_get_error(tls->ssl, error);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        ERR_clear_error();
        return -EAGAIN;
    }
    if (why == SSL_ERROR_ZERO_RETURN)
        return tls_fail(tls, -ECONNRESET, "closed the connection");
    return tls_fail(tls, -EBADMSG, "TLS: %s", tls_reason_text(ERR_peek_error()));
}

ssize_t tls_read(struct tls *tls, uint8_t *bytes, size_t count)
{
    ERR_clear_error();
    int got = SSL_read(tls->ssl, bytes, (int)count);
    return got > 0 ? got : tls_moved_nothing(tls, got);
}

ssize_t tls_write(struct tls *tls, const uint8_t *bytes, size_t count)
{
    ERR_clear_error();
    int sent =
        SSL_write(tls->ssl, bytes, (int)(count < TLS_RECORD_BYTES ? count : TLS_RECORD_BYTES));
    return sent > 0 ? sent : tls_moved_nothing(tls, sent);
}

const char *tls_tenant(const struct tls *tls) { return tls->key.tenant; }
const char *tls_failure(const struct tls *tls) { return tls->failure; }

void tls_library(struct library *ret_row)
{
    ret_row->name = "openssl";
    snprintf(ret_row->built, sizeof ret_row->built, "%s", OPENSSL_VERSION_STR);
    snprintf(ret_row->running, sizeof ret_row->running, "%s",
             OpenSSL_version(OPENSSL_VERSION_STRING));
}
