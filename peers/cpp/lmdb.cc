// LMDB, a copy-on-write B-tree in a mapped file.
#include <lmdb.h>

#include "harness.hpp"

using race::view;

class Lmdb {
public:
    static constexpr bool persistent = true;
    static constexpr bool threads = true;

    void open(const race::Config& config) {
        require(mdb_env_create(&env_), "env_create");
        // "The size should be ... as large as possible, to accommodate future growth".
        require(mdb_env_set_mapsize(env_, size_t(64) << 30), "set_mapsize");
        // Without MDB_NOSYNC every commit waits for the disk; single durable puts take it off.
        unsigned flags = MDB_NOMEMINIT | (config.has_durable_puts ? 0 : MDB_NOSYNC);
        require(mdb_env_open(env_, config.dir.c_str(), flags, 0644), "env_open");
        begin_write();
        require(mdb_dbi_open(write_, nullptr, 0, &dbi_), "dbi_open");
        settle();
    }
    void put(view key, view value) {
        begin_write();
        MDB_val k = val(key), v = val(value);
        require(mdb_put(write_, dbi_, &k, &v, 0), "put");
        count();
    }
    template <class F>
    bool get(view key, F&& found) {
        begin_read();
        return get_in(read_, key, found);
    }
    template <class F>
    bool get_shared(view key, F&& found) {
        // "Reset and renew" a transaction of the thread for each lookup, so that it sees the newest.
        thread_local MDB_txn* txn = nullptr;
        if (txn) require(mdb_txn_renew(txn), "txn_renew");
        else require(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn), "txn_begin");
        bool has_value = get_in(txn, key, found);
        mdb_txn_reset(txn);
        return has_value;
    }
    void open_beside(const race::Config& config, race::Beside) { open(config); }
    void put_beside(view key, view value) { put_durable(key, value); }
    template <class F>
    bool get_beside(view key, F&& found) {
        return get_shared(key, found);
    }
    bool erase(view key) {
        begin_write();
        MDB_val k = val(key);
        int result = mdb_del(write_, dbi_, &k, nullptr);
        if (result != MDB_NOTFOUND) require(result, "del");
        count();
        return result == 0;
    }
    template <class F>
    void scan(F&& each) {
        begin_read();
        MDB_cursor* cursor;
        require(mdb_cursor_open(read_, dbi_, &cursor), "cursor_open");
        MDB_val key, value;
        while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) each(text(key), text(value));
        mdb_cursor_close(cursor);
    }
    void put_durable(view key, view value) {
        MDB_txn* txn;
        require(mdb_txn_begin(env_, nullptr, 0, &txn), "txn_begin");
        MDB_val k = val(key), v = val(value);
        require(mdb_put(txn, dbi_, &k, &v, 0), "put");
        require(mdb_txn_commit(txn), "txn_commit");
    }
    template <class F>
    void transact(std::span<const race::Block::Item> items, F&& found) {
        if (write_ || read_) settle();
        MDB_txn* txn;
        require(mdb_txn_begin(env_, nullptr, 0, &txn), "txn_begin");
        for (auto& item : items) {
            get_in(txn, item.key, [&](view value) { found(item, value); });
            MDB_val k = val(item.key), v = val(item.value);
            require(mdb_put(txn, dbi_, &k, &v, 0), "put");
        }
        require(mdb_txn_commit(txn), "txn_commit");
    }
    void settle() {
        if (write_) require(mdb_txn_commit(write_), "txn_commit");
        if (read_) mdb_txn_abort(read_);
        write_ = read_ = nullptr;
        changes_ = 0;
    }
    void sync() {
        settle();
        require(mdb_env_sync(env_, 1), "env_sync");
    }
    void close() {
        sync();
        mdb_env_close(env_);
    }

private:
    static void require(int result, const char* what) {
        if (result != 0) [[unlikely]] race::fail(std::string("lmdb: ") + what + ": " + mdb_strerror(result));
    }
    static MDB_val val(view bytes) { return {bytes.size(), const_cast<char*>(bytes.data())}; }
    static view text(MDB_val val) { return view(static_cast<char*>(val.mv_data), val.mv_size); }

    template <class F>
    bool get_in(MDB_txn* txn, view key, F&& found) {
        MDB_val k = val(key), v;
        int result = mdb_get(txn, dbi_, &k, &v);
        if (result == MDB_NOTFOUND) return false;
        require(result, "get");
        found(text(v));
        return true;
    }
    void begin_write() {
        if (write_) return;
        if (read_) settle();
        require(mdb_txn_begin(env_, nullptr, 0, &write_), "txn_begin");
    }
    void begin_read() {
        if (read_) return;
        if (write_) settle();
        require(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &read_), "txn_begin");
    }
    void count() {
        if (++changes_ == 10'000) settle();
    }

    MDB_env* env_ = nullptr;
    MDB_dbi dbi_ = 0;
    MDB_txn *write_ = nullptr, *read_ = nullptr;
    int changes_ = 0;
};

RACE_ENGINE(lmdb, Lmdb);
