#include "train/data/encoding/encoder_pool.h"

#include "base/system/threads.h"
#include <pthread.h>
#include <stdlib.h>

struct ups_encoder_pool {
    const ups_run_config *config;
    ups_frame_encoder **encoders; /* (count) */
    int count;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t given_back;
    ups_frame_encoder **idle; /* (idle_count) */
    int idle_count;
};

/* Each on one processor, or on more where there are to be fewer. */
static ups_status share(const ups_session *session, size_t *each, ups_encoder_shares *shares, ups_error *error) {
    int threads = session->config->data.decode_threads;
    UPS_TRY(ups_frame_encoder_measure(session, NULL, each, error));
    *shares = ups_frame_encoder_share(*each, threads > 0 ? threads : ups_cpu_count());
    return UPS_OK;
}

ups_status ups_encoder_pool_measure(const ups_session *session, size_t *bytes, ups_error *error) {
    size_t each;
    ups_encoder_shares shares;
    UPS_TRY(share(session, &each, &shares, error));
    *bytes = each * (size_t)shares.count;
    return UPS_OK;
}

ups_status ups_encoder_pool_open(const ups_session *session, ups_encoder_pool **result, ups_error *error) {
    *result = NULL;
    size_t each;
    ups_encoder_shares shares;
    UPS_TRY(share(session, &each, &shares, error));
    ups_encoder_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return ups_fail(error, UPS_ERR_MEMORY, "no memory for encoders");
    pool->config = session->config;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->given_back, NULL);
    pool->encoders = calloc((size_t)shares.count, sizeof(ups_frame_encoder *));
    pool->idle = calloc((size_t)shares.count, sizeof(ups_frame_encoder *));
    ups_status status =
        pool->encoders && pool->idle ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for encoders");
    while (status == UPS_OK && pool->count < shares.count) {
        ups_frame_encoder *encoder;
        status = ups_frame_encoder_open(session, NULL, shares.threads, &encoder, error);
        if (status == UPS_OK) pool->idle[pool->idle_count++] = pool->encoders[pool->count++] = encoder;
    }
    if (status != UPS_OK) {
        ups_encoder_pool_close(pool);
        return status;
    }
    *result = pool;
    return UPS_OK;
}

void ups_encoder_pool_close(ups_encoder_pool *pool) {
    if (!pool) return;
    for (int i = 0; i < pool->count; i++) ups_frame_encoder_close(pool->encoders[i]);
    pthread_cond_destroy(&pool->given_back);
    pthread_mutex_destroy(&pool->lock);
    free(pool->encoders);
    free(pool->idle);
    free(pool);
}

ups_frame_encoder *ups_encoder_pool_take(ups_encoder_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    while (pool->idle_count == 0) pthread_cond_wait(&pool->given_back, &pool->lock);
    ups_frame_encoder *encoder = pool->idle[--pool->idle_count];
    pthread_mutex_unlock(&pool->lock);
    return encoder;
}

void ups_encoder_pool_give_back(ups_encoder_pool *pool, ups_frame_encoder *encoder) {
    pthread_mutex_lock(&pool->lock);
    pool->idle[pool->idle_count++] = encoder;
    pthread_cond_signal(&pool->given_back);
    pthread_mutex_unlock(&pool->lock);
}

const ups_run_config *ups_encoder_pool_config(const ups_encoder_pool *pool) {
    return pool->config;
}
