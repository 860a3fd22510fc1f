// LevelDB, a log-structured merge tree.
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/write_batch.h>

#include <memory>

#include "harness.hpp"

using race::view;

class Level {
public:
    static constexpr bool persistent = true;
    static constexpr bool threads = true;

    void open(const race::Config& config) {
        leveldb::Options options;
        options.create_if_missing = true;
        options.compression = leveldb::kNoCompression;
        options.write_buffer_size = std::min<size_t>(size_t(64) << 20, config.cache_bytes / 8);
        cache_.reset(leveldb::NewLRUCache(config.cache_bytes));
        filter_.reset(leveldb::NewBloomFilterPolicy(10));
        options.block_cache = cache_.get();
        options.filter_policy = filter_.get();
        options.max_open_files = 10'000;
        require(leveldb::DB::Open(options, config.dir, &db_), "Open");
    }
    void put(view key, view value) { require(db_->Put(leveldb::WriteOptions(), slice(key), slice(value)), "Put"); }
    template <class F>
    bool get(view key, F&& found) {
        return get_into(value_, key, found);
    }
    template <class F>
    bool get_shared(view key, F&& found) {
        thread_local std::string value;
        return get_into(value, key, found);
    }
    // It does not tell whether the key was there.
    bool erase(view key) {
        require(db_->Delete(leveldb::WriteOptions(), slice(key)), "Delete");
        return true;
    }
    template <class F>
    void scan(F&& each) {
        leveldb::ReadOptions options;
        options.fill_cache = false;
        std::unique_ptr<leveldb::Iterator> at(db_->NewIterator(options));
        for (at->SeekToFirst(); at->Valid(); at->Next()) {
            each(view(at->key().data(), at->key().size()), view(at->value().data(), at->value().size()));
        }
        require(at->status(), "Iterator");
    }
    void put_durable(view key, view value) {
        leveldb::WriteOptions options;
        options.sync = true;
        require(db_->Put(options, slice(key), slice(value)), "Put");
    }
    void sync() {
        // A synced write, though of nothing, makes durable what was written to the log before it.
        leveldb::WriteOptions options;
        options.sync = true;
        leveldb::WriteBatch nothing;
        require(db_->Write(options, &nothing), "Write");
    }
    void close() {
        sync();
        delete db_;
    }

private:
    static leveldb::Slice slice(view bytes) { return {bytes.data(), bytes.size()}; }
    static void require(const leveldb::Status& status, const char* what) {
        if (!status.ok()) [[unlikely]] race::fail(std::string("leveldb: ") + what + ": " + status.ToString());
    }
    template <class F>
    bool get_into(std::string& value, view key, F&& found) {
        auto status = db_->Get(leveldb::ReadOptions(), slice(key), &value);
        if (status.IsNotFound()) return false;
        require(status, "Get");
        found(view(value));
        return true;
    }

    std::unique_ptr<leveldb::Cache> cache_;
    std::unique_ptr<const leveldb::FilterPolicy> filter_;
    leveldb::DB* db_ = nullptr;
    std::string value_;
};

RACE_ENGINE(leveldb, Level);
