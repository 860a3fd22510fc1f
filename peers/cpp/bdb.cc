// Berkeley DB's hash access method.
#include <db.h>

#include "harness.hpp"

using race::view;

class Bdb {
public:
    static constexpr bool persistent = true;
    static constexpr bool threads = true;

    void open(const race::Config& config) {
        require(db_env_create(&env_, 0), "db_env_create");
        auto gib = uint32_t(config.cache_bytes >> 30), rest = uint32_t(config.cache_bytes & ((1 << 30) - 1));
        require(env_->set_cachesize(env_, gib, rest, 1), "set_cachesize");
        uint32_t flags = DB_CREATE | DB_INIT_MPOOL | DB_PRIVATE | DB_THREAD;
        is_transactional_ = config.has_durable_puts;
        if (is_transactional_) {
            flags |= DB_INIT_TXN | DB_INIT_LOG | DB_INIT_LOCK | DB_RECOVER;
            // Two puts that split one page wait for each other; without a detector they do so for ever.
            require(env_->set_lk_detect(env_, DB_LOCK_DEFAULT), "set_lk_detect");
        }
        require(env_->open(env_, config.dir.c_str(), flags, 0644), "env open");
        require(db_create(&db_, env_, 0), "db_create");
        // "an accurate estimate of the final size"; "(pagesize - 32) / (average_key_size +
        // average_data_size + 8)".
        size_t pair = std::max<size_t>(16, config.key_bytes + config.value_bytes);
        require(db_->set_h_nelem(db_, uint32_t(config.records)), "set_h_nelem");
        require(db_->set_h_ffactor(db_, uint32_t(std::max<size_t>(1, (4096 - 32) / (pair + 8)))), "set_h_ffactor");
        require(db_->set_pagesize(db_, 4096), "set_pagesize");
        uint32_t auto_commit = is_transactional_ ? DB_AUTO_COMMIT : 0;
        require(db_->open(db_, nullptr, "bdb.db", nullptr, DB_HASH, DB_CREATE | DB_THREAD | auto_commit, 0644), "open");
        value_.resize(std::max<size_t>(config.value_bytes, 64));
    }
    void put(view key, view value) {
        DBT k = dbt(key), v = dbt(value);
        require(db_->put(db_, nullptr, &k, &v, 0), "put");
    }
    template <class F>
    bool get(view key, F&& found) {
        return get_into(value_, key, found);
    }
    template <class F>
    bool get_shared(view key, F&& found) {
        thread_local std::string value;
        value.resize(value_.size());
        return get_into(value, key, found);
    }
    bool erase(view key) {
        DBT k = dbt(key);
        int result = db_->del(db_, nullptr, &k, 0);
        if (result != DB_NOTFOUND) require(result, "del");
        return result == 0;
    }
    template <class F>
    void scan(F&& each) {
        // "Bulk retrieval": many pairs in one call.
        DBC* cursor;
        require(db_->cursor(db_, nullptr, &cursor, DB_CURSOR_BULK), "cursor");
        std::string buffer(std::max<size_t>(1 << 20, value_.size() * 4 / 1024 * 1024), '\0');
        DBT key{}, pairs{};
        pairs.data = buffer.data();
        pairs.ulen = uint32_t(buffer.size());
        pairs.flags = DB_DBT_USERMEM;
        key.flags = DB_DBT_MALLOC;
        int result;
        while ((result = cursor->get(cursor, &key, &pairs, DB_MULTIPLE_KEY | DB_NEXT)) == 0) {
            void *place, *k, *v;
            size_t k_bytes, v_bytes;
            DB_MULTIPLE_INIT(place, &pairs);
            for (;;) {
                DB_MULTIPLE_KEY_NEXT(place, &pairs, k, k_bytes, v, v_bytes);
                if (place == nullptr) break;
                each(view(static_cast<char*>(k), k_bytes), view(static_cast<char*>(v), v_bytes));
            }
        }
        if (result != DB_NOTFOUND) require(result, "cursor get");
        require(cursor->close(cursor), "cursor close");
    }
    // DB_AUTO_COMMIT makes each put a transaction, whose log is synced.
    // One that the detector chose has been undone, and "should be retried".
    void put_durable(view key, view value) {
        DBT k = dbt(key), v = dbt(value);
        int result;
        do {
            result = db_->put(db_, nullptr, &k, &v, 0);
        } while (result == DB_LOCK_DEADLOCK);
        require(result, "put");
    }
    void sync() { require(db_->sync(db_, 0), "sync"); }
    void close() {
        sync();
        require(db_->close(db_, 0), "close");
        require(env_->close(env_, 0), "env close");
    }

private:
    static void require(int result, const char* what) {
        if (result != 0) [[unlikely]] race::fail(std::string("bdb: ") + what + ": " + db_strerror(result));
    }
    static DBT dbt(view bytes) {
        DBT dbt{};
        dbt.data = const_cast<char*>(bytes.data());
        dbt.size = uint32_t(bytes.size());
        return dbt;
    }
    template <class F>
    bool get_into(std::string& buffer, view key, F&& found) {
        DBT k = dbt(key), v{};
        v.data = buffer.data();
        v.ulen = uint32_t(buffer.size());
        v.flags = DB_DBT_USERMEM;
        int result = db_->get(db_, nullptr, &k, &v, 0);
        if (result == DB_NOTFOUND) return false;
        require(result, "get");
        found(view(buffer.data(), v.size));
        return true;
    }

    DB_ENV* env_ = nullptr;
    DB* db_ = nullptr;
    bool is_transactional_ = false;
    std::string value_;
};

RACE_ENGINE(bdb, Bdb);
