// ChaCha20-Poly1305 from libcrypto, opened at run time: the library is optional and never linked.
#ifndef CLIBCRYPTO_H
#define CLIBCRYPTO_H

#include <stddef.h>
#include <stdint.h>

/// A cipher context; one thread at a time uses it.
typedef struct clibcrypto_context clibcrypto_context;

/// Opens libcrypto once; 1 when every function that is needed was found, else 0.
int clibcrypto_is_available(void);

/// What OpenSSL calls its version ("OpenSSL 3.0.19 …"), or NULL when libcrypto is not available.
const char *clibcrypto_version(void);

clibcrypto_context *clibcrypto_context_create(void);
/// Overwrites what the context has of the last keys, which libcrypto keeps until the next message.
void clibcrypto_context_forget(clibcrypto_context *context);
/// The same of what it has opened last alone.
void clibcrypto_context_forget_opening(clibcrypto_context *context);
/// Wipes and frees the context.
void clibcrypto_context_destroy(clibcrypto_context *context);

/// IETF ChaCha20-Poly1305 of block (64 bytes) ‖ message. The encrypted block goes to block_out, the
/// ciphertext to out (message_count bytes, may equal message), the authenticator to tag_out (16). 1 on success.
int clibcrypto_seal(clibcrypto_context *context, const uint8_t key[32], const uint8_t nonce[12],
                    const uint8_t *ad, size_t ad_count, const uint8_t block[64],
                    uint8_t block_out[64], const uint8_t *message, size_t message_count,
                    uint8_t *out, uint8_t tag_out[16]);

/// The inverse. libcrypto writes out *before* it has verified: out must be scratch that nobody reads
/// unless 1 is returned. 0: not authentic. -1: libcrypto failed.
int clibcrypto_open(clibcrypto_context *context, const uint8_t key[32], const uint8_t nonce[12],
                    const uint8_t *ad, size_t ad_count, const uint8_t block[64],
                    const uint8_t *ciphertext, size_t ciphertext_count, uint8_t *out,
                    const uint8_t tag[16]);

#endif
