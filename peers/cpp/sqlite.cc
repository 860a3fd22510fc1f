// SQLite: one table without rowids.
#include <sqlite3.h>

#include "harness.hpp"

using race::view;

class Sqlite {
public:
    static constexpr bool persistent = true;
    // A connection for each thread would be another program than the one measured here.
    static constexpr bool threads = false;

    void open(const race::Config& config) { open_as(config, "EXCLUSIVE"); }
    void open_beside(const race::Config& config, race::Beside) { open_as(config, "NORMAL"); }
    void put_beside(view key, view value) { store(key, value); }
    template <class F>
    bool get_beside(view key, F&& found) {
        return get(key, found);
    }
    void open_as(const race::Config& config, const char* locking_mode) {
        require(sqlite3_open((config.dir + "/sqlite.db").c_str(), &db_), "open");
        require(sqlite3_busy_timeout(db_, 600'000), "busy_timeout");
        run((std::string("PRAGMA locking_mode = ") + locking_mode).c_str());
        run("PRAGMA journal_mode = WAL");
        has_durable_puts_ = config.has_durable_puts;
        run(has_durable_puts_ ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = OFF");
        run(("PRAGMA cache_size = -" + std::to_string(config.cache_bytes / 1024)).c_str());
        run("CREATE TABLE IF NOT EXISTS records (k BLOB PRIMARY KEY, v BLOB) WITHOUT ROWID");
        put_ = prepared("INSERT INTO records VALUES (?1, ?2) ON CONFLICT (k) DO UPDATE SET v = excluded.v");
        get_ = prepared("SELECT v FROM records WHERE k = ?1");
        erase_ = prepared("DELETE FROM records WHERE k = ?1");
        scan_ = prepared("SELECT k, v FROM records");
        begin_ = prepared("BEGIN IMMEDIATE");
        commit_ = prepared("COMMIT");
    }
    void put(view key, view value) {
        begin();
        store(key, value);
        count();
    }
    template <class F>
    bool get(view key, F&& found) {
        bind(get_, 1, key);
        int result = sqlite3_step(get_);
        if (result == SQLITE_ROW) found(column(get_, 0));
        else race::check(result == SQLITE_DONE, "sqlite: select");
        sqlite3_reset(get_);
        return result == SQLITE_ROW;
    }
    bool erase(view key) {
        begin();
        bind(erase_, 1, key);
        race::check(sqlite3_step(erase_) == SQLITE_DONE, "sqlite: delete");
        sqlite3_reset(erase_);
        count();
        return sqlite3_changes(db_) == 1 || is_committed_;
    }
    template <class F>
    void scan(F&& each) {
        int result;
        while ((result = sqlite3_step(scan_)) == SQLITE_ROW) each(column(scan_, 0), column(scan_, 1));
        race::check(result == SQLITE_DONE, "sqlite: select");
        sqlite3_reset(scan_);
    }
    void put_durable(view key, view value) {
        settle();
        store(key, value);
    }
    template <class F>
    void transact(std::span<const race::Block::Item> items, F&& found) {
        settle();
        step(begin_);
        for (auto& item : items) {
            get(item.key, [&](view value) { found(item, value); });
            store(item.key, item.value);
        }
        step(commit_);
    }
    void settle() {
        if (changes_ == 0) return;
        run("COMMIT");
        changes_ = 0;
    }
    void sync() {
        settle();
        // With this level a checkpoint syncs the log before and the file after, if it has anything to
        // write: what earlier ones have written without a sync is synced with it.
        run("PRAGMA synchronous = FULL");
        run("PRAGMA user_version = 1");
        run("PRAGMA wal_checkpoint(TRUNCATE)");
        if (!has_durable_puts_) run("PRAGMA synchronous = OFF");
    }
    void close() {
        sync();
        for (auto* statement : {put_, get_, erase_, scan_, begin_, commit_}) sqlite3_finalize(statement);
        require(sqlite3_close(db_), "close");
    }

private:
    void require(int result, const char* what) {
        if (result != SQLITE_OK) race::fail(std::string("sqlite: ") + what + ": " + sqlite3_errmsg(db_));
    }
    void run(const char* sql) { require(sqlite3_exec(db_, sql, nullptr, nullptr, nullptr), sql); }
    sqlite3_stmt* prepared(const char* sql) {
        sqlite3_stmt* statement;
        require(sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr), sql);
        return statement;
    }
    static void bind(sqlite3_stmt* statement, int i, view bytes) {
        sqlite3_bind_blob(statement, i, bytes.data(), int(bytes.size()), SQLITE_STATIC);
    }
    static view column(sqlite3_stmt* statement, int i) {
        return view(static_cast<const char*>(sqlite3_column_blob(statement, i)),
                    size_t(sqlite3_column_bytes(statement, i)));
    }
    void store(view key, view value) {
        bind(put_, 1, key);
        bind(put_, 2, value);
        race::check(sqlite3_step(put_) == SQLITE_DONE, "sqlite: insert");
        sqlite3_reset(put_);
    }
    static void step(sqlite3_stmt* statement) {
        race::check(sqlite3_step(statement) == SQLITE_DONE, "sqlite: a transaction");
        sqlite3_reset(statement);
    }
    void begin() {
        if (changes_ == 0) run("BEGIN");
    }
    void count() {
        is_committed_ = ++changes_ == 10'000;
        if (is_committed_) settle();
    }

    sqlite3* db_ = nullptr;
    sqlite3_stmt *put_ = nullptr, *get_ = nullptr, *erase_ = nullptr, *scan_ = nullptr;
    sqlite3_stmt *begin_ = nullptr, *commit_ = nullptr;
    int changes_ = 0;
    bool is_committed_ = false, has_durable_puts_ = false;
};

RACE_ENGINE(sqlite, Sqlite);
