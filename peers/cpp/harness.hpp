// The work of the race for engines with a C or C++ interface, in the tight driver: one program per
// engine includes this file, describes the engine in a class, and names it with `RACE_ENGINE`.
//
// `rust/src/lib.rs` is the same for engines written in Rust. Both must ask for the same keys, in the
// same order, with the same values; `cargo test -p race` compares the checksums that they print with
// `--checksum`.
//
//     program --dir DIR --records N --key-bytes B --value-bytes B [--words FILE] [--checksum] PHASE...
//
// A phase is a word with its parameters after colons; `Runner::phase` has the list. One line of JSON
// per phase goes to stdout.
//
// What is measured is the time of the calls: keys and values are written in blocks before the clock
// starts, and the clock is read once in `kGroup` calls. Every answer's length is checked, its first
// and last byte are read, and one in 256 is compared in full.
//
// An engine is a class with
//
//     static constexpr bool persistent;       // in a file, or in memory only
//     void open(const Config&);               // makes the table, or opens the one that is there
//     void put(view key, view value);         // nothing is made durable
//     bool get(view key, F found);            // calls found(view value); false if there is no such key
//     bool erase(view key);                   // false if there was none, where the engine tells
//     void scan(F each);                      // calls each(view key, view value) once a record
//     void sync();                            // all that was put is durable
//     void close();                           // likewise, and the table is closed
//
// and, if it has such a thing,
//
//     void settle();                          // end of a phase: commit the open transaction
//     void get_many(views keys, F found);     // found(index, view value)
//     void transact(items, F found);          // reads each key, found(item, view value), and puts its
//                                             // value, all in one transaction that is not durable
//     void put_durable(view key, view value); // durable when it returns
//     bool get_shared(view key, F found);     // like get, from any thread while one thread puts
//     void open_beside(const Config&, Beside);  // as `open`, beside other processes
//     void put_beside(view key, view value);  // when it returns, other processes find it; not durable
//     bool get_beside(view key, F found);     // like get, the newest that any process has put
//     static constexpr bool threads;          // put_durable may be called from many threads
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace race {

using view = std::string_view;

[[noreturn]] inline void fail(const std::string& what) { throw std::runtime_error(what); }

inline void check(bool claim, const char* what) {
    if (!claim) [[unlikely]] fail(what);
}

// What an engine is told when it is opened.
struct Config {
    std::string dir;
    // Number of records that will be stored, for engines whose manuals ask to be told.
    uint64_t records = 0;
    size_t key_bytes = 16;
    size_t value_bytes = 100;
    // What a cache of the engine's own may hold, where it has one.
    uint64_t cache_bytes = uint64_t(1) << 30;
    // Whether single puts will have to be durable, for engines that must know when they are opened.
    bool has_durable_puts = false;
    // Whether there will be transactions that read, likewise.
    bool has_transactions = false;
};

// What a process does beside others.
enum class Beside { reads, writes_alone, writes_by_turns };

// Thrown by an engine that has no such operation.
struct Unsupported {
    const char* why;
};

inline uint64_t splitmix64(uint64_t i) {
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

// Which keys and values there are.
class Data {
public:
    Data(const Config& config, std::vector<std::string> words)
        : config_(config), words_(std::move(words)) {}

    bool is_words() const { return config_.key_bytes == 0; }

    // Appends key `i`: a word, or splitmix64(i), in hex digits where there is room for them.
    void append_key(uint64_t i, std::string& out) const {
        if (is_words()) {
            out += words_[i];
            return;
        }
        uint64_t bits = splitmix64(i);
        if (config_.key_bytes == 8) {
            out.append(reinterpret_cast<const char*>(&bits), 8);
            return;
        }
        for (size_t digit = 0; digit < config_.key_bytes; digit++) {
            out += "0123456789abcdef"[bits >> (60 - 4 * digit) & 15];
        }
    }

    // Appends the value of record `i` after `version` changes: incompressible bytes, or the number
    // of the word.
    void append_value(uint64_t i, uint64_t version, std::string& out) const {
        if (is_words()) {
            out += std::to_string(i + 1);
            return;
        }
        uint64_t seed = splitmix64(i ^ version << 48 ^ 0x5555);
        for (size_t at = 0; at < config_.value_bytes; at += 8) {
            uint64_t bits = splitmix64(seed + at / 8);
            out.append(reinterpret_cast<const char*>(&bits),
                       std::min<size_t>(8, config_.value_bytes - at));
        }
    }

    size_t value_bytes(uint64_t i) const {
        return is_words() ? std::to_string(i + 1).size() : config_.value_bytes;
    }

private:
    const Config& config_;
    std::vector<std::string> words_;
};

// Sums up what was asked and answered, in any order of calls.
inline uint64_t digest(view bytes) {
    uint64_t hash = bytes.size();
    for (size_t at = 0; at < bytes.size(); at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
        hash = splitmix64(hash ^ word);
    }
    return hash;
}

// The first eight bytes of a key as a number, which is cheap enough to add up during a scan.
inline uint64_t prefix(view key) {
    uint64_t word = 0;
    memcpy(&word, key.data(), std::min<size_t>(8, key.size()));
    return word;
}

// Keys and values of some operations, one after the other in memory.
class Block {
public:
    struct Item {
        view key;
        view value;
        uint64_t index;
    };

    void clear() {
        bytes_.clear();
        ends_.clear();
        items_.clear();
    }

    void add(const Data& data, uint64_t index, uint64_t version, bool has_value) {
        size_t start = bytes_.size();
        data.append_key(index, bytes_);
        size_t middle = bytes_.size();
        if (has_value) data.append_value(index, version, bytes_);
        ends_.push_back({start, middle, bytes_.size(), index});
    }

    // To be called when all have been added: the memory does not move any more.
    const std::vector<Item>& items() {
        view all = bytes_;
        items_.clear();
        for (auto& e : ends_) {
            items_.push_back(
                {all.substr(e.start, e.middle - e.start), all.substr(e.middle, e.end - e.middle), e.index});
        }
        return items_;
    }

private:
    struct End {
        size_t start, middle, end;
        uint64_t index;
    };
    std::string bytes_;
    std::vector<End> ends_;
    std::vector<Item> items_;
};

inline uint64_t now_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return uint64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// How often an operation took how long: buckets of a sixteenth of a power of two.
class Histogram {
public:
    void add(uint64_t ns) {
        counts_[bucket(ns)]++;
        total_++;
    }
    uint64_t total() const { return total_; }
    // The upper end of the bucket in which this part of all operations lies.
    uint64_t at(double part) const {
        uint64_t rank = uint64_t(part * double(total_ - 1)), seen = 0;
        for (size_t i = 0; i < counts_.size(); i++) {
            seen += counts_[i];
            if (seen > rank) return upper(i);
        }
        return upper(counts_.size() - 1);
    }

private:
    static size_t bucket(uint64_t ns) {
        if (ns < 16) return ns;
        int log = 63 - __builtin_clzll(ns);
        return size_t(log - 3) * 16 + (ns >> (log - 4) & 15);
    }
    static uint64_t upper(size_t i) {
        if (i < 16) return i;
        return (i % 16 + 17) << (i / 16 - 1);
    }
    std::array<uint64_t, 61 * 16> counts_{};
    uint64_t total_ = 0;
};

// What the processors did, in ticks of the kernel: all of them together, and this process.
struct Load {
    double busy = 0, stolen = 0, own = 0;

    static Load now() {
        Load load;
        std::ifstream stat("/proc/stat");
        std::string name;
        double user, nice, system, idle, wait, irq, soft, steal;
        stat >> name >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal;
        load.busy = user + nice + system + irq + soft;
        load.stolen = steal;
        rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        double seconds = double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                         double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
        load.own = seconds * double(sysconf(_SC_CLK_TCK));
        return load;
    }
};

inline uint64_t status_bytes(const char* name) {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
        if (line.rfind(name, 0) == 0) return std::stoull(line.substr(strlen(name) + 1)) * 1024;
    }
    return 0;
}

inline uint64_t faults() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return uint64_t(usage.ru_minflt + usage.ru_majflt);
}

// How many bytes this process has had the device read, by calls or by page faults.
inline uint64_t device_read_bytes() {
    const std::string name = "read_bytes: ";
    std::ifstream io("/proc/self/io");
    std::string line;
    while (std::getline(io, line)) {
        if (line.rfind(name, 0) == 0) return std::stoull(line.substr(name.size()));
    }
    return 0;
}

// This program with one phase, as a process of its own.
class Child {
public:
    Child(const Config& config, const std::string& phase) {
        int in[2], out[2];
        check(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "no pipe");
        std::vector<std::string> words = {"/proc/self/exe",  "--dir",         config.dir,
                                          "--records",       std::to_string(config.records),
                                          "--key-bytes",     std::to_string(config.key_bytes),
                                          "--value-bytes",   std::to_string(config.value_bytes),
                                          "--cache-bytes",   std::to_string(config.cache_bytes),
                                          phase};
        std::vector<char*> arguments;
        for (auto& word : words) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in[0], 0);
        posix_spawn_file_actions_adddup2(&actions, out[1], 1);
        check(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) == 0, "no process");
        posix_spawn_file_actions_destroy(&actions);
        ::close(in[0]);
        ::close(out[1]);
        start_ = in[1];
        said_ = fdopen(out[0], "r");
    }
    Child(Child&& other) noexcept
        : pid_(std::exchange(other.pid_, 0)), start_(std::exchange(other.start_, -1)), said_(std::exchange(other.said_, nullptr)) {}
    ~Child() {
        start();
        if (said_) fclose(said_);
        if (pid_ > 0) waitpid(pid_, nullptr, 0);
    }
    // Has it begin.
    void start() {
        if (start_ >= 0) ::close(std::exchange(start_, -1));
    }
    // Waits for what it says next; nothing if it has ended.
    std::string line() {
        char text[256];
        if (!fgets(text, sizeof text, said_)) return "";
        return std::string(text, strcspn(text, "\n"));
    }

private:
    pid_t pid_ = 0;
    int start_ = -1;
    FILE* said_ = nullptr;
};

template <class Engine>
class Runner {
public:
    Runner(Config config, std::vector<std::string> words, bool has_checksum)
        : config_(std::move(config)), data_(config_, std::move(words)), has_checksum_(has_checksum) {
        size_t bytes = std::max<size_t>(1, config_.value_bytes + config_.key_bytes);
        block_records_ = std::clamp<size_t>((size_t(8) << 20) / bytes, 1, 4096);
        group_ = config_.value_bytes >= 4096 ? 1 : kGroup;
        overwritten_.resize(config_.records);
        deleted_.resize(config_.records);
    }

    // Runs one phase and prints its line.
    void phase(const std::string& text) {
        std::vector<std::string> words = split(text);
        const std::string& name = words[0];
        auto number = [&](size_t i) { return i < words.size() ? std::stoull(words[i]) : 0; };
        begin();
        try {
            if (name == "open") timed([&] { engine_.open(config_); });
            else if (name == "create") create(0, config_.records, words.size() > 1);
            else if (name == "sync") timed([&] { engine_.sync(); });
            else if (name == "close") timed([&] { engine_.close(); });
            else if (name == "hit") lookup(number(1), false);
            else if (name == "miss") miss(number(1));
            else if (name == "get_many") get_many(number(1), number(2));
            else if (name == "read") in_order(false);
            else if (name == "verify") in_order(true);
            else if (name == "scan") scan();
            else if (name == "overwrite") overwrite(number(1), "uniform", words.size() > 2);
            else if (name == "churn") overwrite(number(1), words.at(2), true);
            else if (name == "transactions") transactions(number(1), number(2));
            else if (name == "delete") erase(number(1));
            else if (name == "durable") durable(number(1), number(2));
            else if (name == "flush") flush(number(1));
            else if (name == "readers") readers(number(1), number(2));
            else if (name == "beside") processes(number(1), 1, number(2), Beside::reads);
            else if (name == "written") processes(number(1), 1, number(2), Beside::writes_alone);
            else if (name == "turns") processes(0, number(1), number(2), Beside::writes_by_turns);
            else if (name == "process") process(words.at(1), number(2), number(3));
            else if (name == "first_get") lookup(1, false);
            else if (name == "audit") audit();
            else if (name == "kill") ;
            else fail("there is no phase `" + name + "`");
            end(text);
        } catch (const Unsupported& what) {
            if (name == "delete") deleted_.assign(deleted_.size(), false);
            printf("{\"phase\":\"%s\",\"unsupported\":\"%s\"}\n", text.c_str(), what.why);
        }
        fflush(stdout);
        if (name == "kill") raise(SIGKILL);
    }

private:
    using Item = Block::Item;

    // The clock is read once in so many calls; a call that takes milliseconds stands out of them.
    static constexpr size_t kGroup = 16;

    static std::vector<std::string> split(const std::string& text) {
        std::vector<std::string> words;
        std::istringstream in(text);
        for (std::string word; std::getline(in, word, ':');) words.push_back(word);
        check(!words.empty(), "an empty phase");
        return words;
    }

    void begin() {
        ns_ = worst_ns_ = ops_ = checksum_ = 0;
        histogram_ = Histogram();
        extra_.clear();
        faults_ = faults();
        read_bytes_ = device_read_bytes();
        load_ = Load::now();
        start_ns_ = now_ns();
    }

    void end(const std::string& text) {
        asm volatile("" : : "r"(sink_));
        double seconds = double(now_ns() - start_ns_) / 1e9;
        Load load = Load::now();
        double ticks = seconds * double(sysconf(_SC_CLK_TCK));
        double others = (load.busy - load_.busy) - (load.own - load_.own);
        printf("{\"phase\":\"%s\",\"ops\":%llu,\"ns\":%llu,\"worst_ns\":%llu", text.c_str(),
               (unsigned long long)ops_, (unsigned long long)ns_, (unsigned long long)worst_ns_);
        printf(",\"others_cpus\":%.3f,\"stolen_cpus\":%.3f,\"own_cpus\":%.3f",
               std::max(0.0, others) / std::max(ticks, 1.0),
               (load.stolen - load_.stolen) / std::max(ticks, 1.0),
               (load.own - load_.own) / std::max(ticks, 1.0));
        printf(",\"faults\":%llu", (unsigned long long)(faults() - faults_));
        printf(",\"read_bytes\":%llu", (unsigned long long)(device_read_bytes() - read_bytes_));
        printf(",\"rss_bytes\":%llu,\"peak_rss_bytes\":%llu",
               (unsigned long long)status_bytes("VmRSS:"), (unsigned long long)status_bytes("VmHWM:"));
        if constexpr (Engine::persistent) print_space();
        if (histogram_.total() > 0) {
            printf(",\"p50_ns\":%llu,\"p99_ns\":%llu,\"p999_ns\":%llu,\"p9999_ns\":%llu",
                   (unsigned long long)histogram_.at(0.5), (unsigned long long)histogram_.at(0.99),
                   (unsigned long long)histogram_.at(0.999), (unsigned long long)histogram_.at(0.9999));
        }
        if (has_checksum_) printf(",\"checksum\":\"%016llx\"", (unsigned long long)checksum_);
        printf("%s}\n", extra_.c_str());
    }

    void print_space() {
        uint64_t file_bytes = 0, disk_bytes = 0;
        namespace fs = std::filesystem;
        std::error_code error;
        for (auto& entry : fs::recursive_directory_iterator(config_.dir, error)) {
            struct stat status;
            if (lstat(entry.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
            file_bytes += uint64_t(status.st_size);
            disk_bytes += uint64_t(status.st_blocks) * 512;
        }
        printf(",\"file_bytes\":%llu,\"disk_bytes\":%llu", (unsigned long long)file_bytes,
               (unsigned long long)disk_bytes);
    }

    // Times one call.
    template <class F>
    void timed(F&& call) {
        uint64_t start = now_ns();
        call();
        uint64_t ns = now_ns() - start;
        ns_ += ns;
        ops_++;
        worst_ns_ = std::max(worst_ns_, ns);
    }

    // Makes `count` operations in blocks, `choose(j)` says what the j-th one is about, and calls
    // `operation` for each, with the clock running.
    template <class Choose, class Operation>
    void blocks(uint64_t count, bool has_value, bool has_latency, Choose&& choose, Operation&& operation) {
        uint64_t slowest = 0;
        size_t slowest_calls = 1;
        size_t group = has_latency ? 1 : group_;
        for (uint64_t done = 0; done < count;) {
            block_.clear();
            uint64_t end = std::min<uint64_t>(count, done + block_records_);
            for (uint64_t j = done; j < end; j++) {
                auto [index, version] = choose(j);
                block_.add(data_, index, version, has_value);
            }
            done = end;
            const auto& items = block_.items();
            if (has_checksum_) {
                for (auto& item : items) checksum_ += digest(item.key) + 3 * digest(item.value);
            }
            uint64_t start = now_ns(), before = start;
            for (size_t at = 0; at < items.size(); at += group) {
                size_t last = std::min(items.size(), at + group);
                for (size_t i = at; i < last; i++) operation(items[i]);
                uint64_t after = now_ns(), took = after - before;
                if (has_latency) histogram_.add(took);
                if (took > slowest) slowest = took, slowest_calls = last - at;
                before = after;
            }
            if (done == count) settle();
            ns_ += now_ns() - start;
        }
        ops_ += count;
        // What the other calls of the group took on average is not the slow one's.
        uint64_t others = count == 0 ? 0 : ns_ / count * (slowest_calls - 1);
        worst_ns_ = std::max(worst_ns_, slowest > others ? slowest - others : slowest);
    }

    void settle() {
        if constexpr (requires { engine_.settle(); }) engine_.settle();
    }

    uint64_t pick(uint64_t j) const { return splitmix64(j ^ 0xabcd) % config_.records; }

    uint64_t version_of(uint64_t index) const { return overwritten_[index] ? 1 : 0; }

    void check_value(uint64_t index, view value, bool is_whole) {
        size_t expected = config_.key_bytes == 0 && !is_whole ? value.size() : data_.value_bytes(index);
        check(value.size() == expected, "a value has another length than what was stored");
        if (!value.empty()) sink_ += uint8_t(value.front()) + uint8_t(value.back());
        if (is_whole || index % 256 == 0) [[unlikely]] {
            expected_.clear();
            data_.append_value(index, version_of(index), expected_);
            check(value == expected_, "a value is not the one that was stored");
        }
        if (has_checksum_) [[unlikely]] checksum_ += 5 * digest(value);
    }

    void create(uint64_t first, uint64_t count, bool has_latency) {
        blocks(count, true, has_latency, [&](uint64_t j) { return std::pair(first + j, uint64_t(0)); },
               [&](const Item& item) { engine_.put(item.key, item.value); });
    }

    void lookup(uint64_t count, bool is_whole) {
        blocks(count, false, false, [&](uint64_t j) { return std::pair(pick(j), uint64_t(0)); },
               [&](const Item& item) { get(item, is_whole); });
    }

    void get(const Item& item, bool is_whole) {
        bool found = engine_.get(item.key, [&](view value) { check_value(item.index, value, is_whole); });
        check(found, "a key that was stored is not found");
    }

    void miss(uint64_t count) {
        blocks(count, false, false, [&](uint64_t j) { return std::pair(j + 0x100000000, uint64_t(0)); },
               [&](const Item& item) {
                   bool found = engine_.get(item.key, [](view) {});
                   check(!found, "a key that was never stored is found");
               });
    }

    void in_order(bool is_whole) {
        blocks(config_.records, false, false, [&](uint64_t j) { return std::pair(j, uint64_t(0)); },
               [&](const Item& item) { get(item, is_whole); });
    }

    void get_many(uint64_t count, uint64_t batch) {
        if constexpr (requires { engine_.get_many(std::vector<view>(), [](size_t, view) {}); }) {
            std::vector<view> keys;
            std::vector<uint64_t> indices;
            uint64_t answers = 0;
            auto ask = [&] {
                engine_.get_many(keys, [&](size_t i, view value) {
                    check_value(indices[i], value, false);
                    answers++;
                });
                keys.clear();
                indices.clear();
            };
            blocks(count, false, false, [&](uint64_t j) { return std::pair(pick(j), uint64_t(0)); },
                   [&](const Item& item) {
                       keys.push_back(item.key);
                       indices.push_back(item.index);
                       // Blocks are a multiple of the batch, but for the last one.
                       if (keys.size() == batch) ask();
                   });
            check(keys.empty(), "the number of lookups is not a multiple of the batch");
            check(answers == count, "a key that was stored is not found");
        } else {
            throw Unsupported{"no call for many keys"};
        }
    }

    void scan() {
        // What the keys add up to is counted before the clock starts.
        uint64_t expected_count = 0, expected_sum = 0;
        std::string key;
        for (uint64_t i = 0; i < config_.records; i++) {
            if (deleted_[i]) continue;
            key.clear();
            data_.append_key(i, key);
            expected_count++;
            expected_sum += prefix(key);
        }
        uint64_t count = 0, sum = 0;
        uint64_t start = now_ns();
        engine_.scan([&](view key, view value) {
            count++;
            sum += prefix(key);
            if (!value.empty()) sink_ += uint8_t(value.front()) + uint8_t(value.back());
            if (has_checksum_) [[unlikely]] checksum_ += digest(key) + 5 * digest(value);
        });
        ns_ += now_ns() - start;
        ops_ += count;
        check(count == expected_count && sum == expected_sum, "a scan does not give every key once");
    }

    void overwrite(uint64_t count, const std::string& choice, bool has_latency) {
        // 80/20: four in five of the changes go to the first fifth of the records.
        bool is_skewed = choice == "skewed";
        auto target = [&](uint64_t j) {
            uint64_t index = pick(j ^ 0x77770000);
            if (is_skewed && splitmix64(j ^ 0x8020) % 5 < 4) index %= std::max<uint64_t>(1, config_.records / 5);
            overwritten_[index] = true;
            return std::pair(index, uint64_t(1));
        };
        blocks(count, true, has_latency, target, [&](const Item& item) { engine_.put(item.key, item.value); });
    }

    // Transactions of so many changes, each of which reads a record and stores another value. An operation
    // is a change; the worst is a transaction.
    void transactions(uint64_t count, uint64_t size) {
        if constexpr (requires { engine_.transact(std::span<const Item>(), [](const Item&, view) {}); }) {
            check(size > 0 && count % size == 0, "the changes are no multiple of those in a transaction");
            uint64_t in_block = std::max<uint64_t>(1, block_records_ / size) * size;
            for (uint64_t done = 0; done < count;) {
                block_.clear();
                for (uint64_t end = std::min(count, done + in_block); done < end; done++) {
                    uint64_t index = pick(done ^ 0x55550000);
                    block_.add(data_, index, 1, true);
                }
                std::span<const Item> items = block_.items();
                if (has_checksum_) {
                    for (auto& item : items) checksum_ += digest(item.key) + 3 * digest(item.value);
                }
                uint64_t start = now_ns(), before = start;
                for (size_t at = 0; at < items.size(); at += size) {
                    size_t found = 0;
                    engine_.transact(items.subspan(at, size), [&](const Item& item, view value) {
                        check_value(item.index, value, false);
                        overwritten_[item.index] = true;
                        found++;
                    });
                    check(found == size, "a key that was stored is not found");
                    uint64_t after = now_ns();
                    worst_ns_ = std::max(worst_ns_, after - before);
                    before = after;
                }
                ns_ += before - start;
                ops_ += items.size();
            }
        } else {
            throw Unsupported{"no transactions that read"};
        }
    }

    void erase(uint64_t count) {
        // A prime step visits different records, in an order that no engine has.
        check(count <= config_.records && config_.records % 2654435761 != 0, "no such order of deletes");
        auto target = [&](uint64_t j) {
            uint64_t index = j * 2654435761 % config_.records;
            deleted_[index] = true;
            return std::pair(index, uint64_t(0));
        };
        blocks(count, false, false, target, [&](const Item& item) {
            check(engine_.erase(item.key), "a key to delete is not found");
        });
    }

    // Looks up one record in 61, with the clock not running, and compares the whole answer.
    void audit() {
        for (uint64_t i = 0; i < config_.records; i += 61) {
            std::string key;
            data_.append_key(i, key);
            bool found = engine_.get(key, [&](view value) { check_value(i, value, true); });
            check(found == !deleted_[i], "a record is there or not, and should not or should");
        }
    }

    // One put per durable commit, from so many threads.
    void durable(uint64_t count, uint64_t thread_count) {
        if constexpr (requires { engine_.put_durable(view(), view()); }) {
            if (thread_count > 1 && !Engine::threads) throw Unsupported{"one thread at a time"};
            check(count <= block_records_ * 16, "too many durable puts for one block");
            block_.clear();
            for (uint64_t j = 0; j < count; j++) block_.add(data_, config_.records + j, 0, true);
            const auto& items = block_.items();
            if (has_checksum_) {
                for (auto& item : items) checksum_ += digest(item.key) + 3 * digest(item.value);
            }
            std::vector<uint64_t> worst(thread_count);
            std::atomic<const char*> failed = nullptr;
            uint64_t start = now_ns();
            auto work = [&](size_t thread) {
                uint64_t before = now_ns();
                try {
                    for (size_t i = thread; i < items.size(); i += thread_count) {
                        engine_.put_durable(items[i].key, items[i].value);
                        uint64_t after = now_ns();
                        worst[thread] = std::max(worst[thread], after - before);
                        before = after;
                    }
                } catch (const std::exception& error) {
                    fprintf(stderr, "%s\n", error.what());
                    failed = "a durable put failed";
                }
            };
            std::vector<std::thread> threads;
            for (size_t thread = 1; thread < thread_count; thread++) threads.emplace_back(work, thread);
            work(0);
            for (auto& thread : threads) thread.join();
            ns_ += now_ns() - start;
            check(failed == nullptr, "a durable put failed");
            ops_ += count;
            worst_ns_ = *std::max_element(worst.begin(), worst.end());
            for (auto& item : items) {
                bool found = engine_.get(item.key, [&](view value) { check(value == item.value, "another value"); });
                check(found, "a durable put is not found");
            }
        } else {
            throw Unsupported{"no durable put"};
        }
    }

    // Overwrites 4 KiB of a file of its own, and has the device make it durable: what a durable
    // commit cannot take less than. No engine has a part in it.
    void flush(uint64_t count) {
        std::string path = config_.dir + "/flush", page(4096, 'x');
        int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        check(file >= 0, "the file to flush cannot be made");
        auto write = [&](uint64_t j) {
            memcpy(page.data(), &j, sizeof j);
            check(pwrite(file, page.data(), page.size(), 0) == ssize_t(page.size()), "it is not written");
            if (has_checksum_) checksum_ += digest(page);
        };
        write(0);
        check(fsync(file) == 0, "it is not synced");
        for (uint64_t j = 1; j <= count; j++) {
            timed([&] {
                write(j);
                check(fdatasync(file) == 0, "it is not flushed");
            });
        }
        check(::close(file) == 0 && unlink(path.c_str()) == 0, "the file to flush cannot be removed");
    }

    // So many threads look up random records for so many milliseconds, while one overwrites.
    void readers(uint64_t thread_count, uint64_t milliseconds) {
        if constexpr (requires { engine_.get_shared(view(), [](view) {}); }) {
            struct alignas(64) Count {
                uint64_t gets = 0;
            };
            std::vector<Count> counts(thread_count);
            std::atomic<bool> is_over = false, has_failed = false;
            std::atomic<uint64_t> ready = 0;
            auto read = [&](size_t thread) {
                Block block;
                try {
                    for (uint64_t j = thread << 32; !is_over;) {
                        block.clear();
                        for (size_t i = 0; i < 1024; i++) block.add(data_, pick(j++), 0, false);
                        const auto& items = block.items();
                        if (counts[thread].gets == 0) ready++;
                        for (auto& item : items) {
                            size_t bytes = 0;
                            bool found = engine_.get_shared(item.key, [&](view value) { bytes = value.size(); });
                            check(found && bytes == data_.value_bytes(item.index), "a wrong answer while one writes");
                        }
                        counts[thread].gets += items.size();
                    }
                } catch (const std::exception& error) {
                    fprintf(stderr, "%s\n", error.what());
                    has_failed = true;
                }
            };
            std::vector<std::thread> threads;
            for (size_t thread = 0; thread < thread_count; thread++) threads.emplace_back(read, thread);
            while (ready < thread_count && !has_failed) std::this_thread::yield();
            uint64_t start = now_ns(), deadline = start + milliseconds * 1'000'000, puts = 0;
            while (now_ns() < deadline && !has_failed) {
                block_.clear();
                for (size_t i = 0; i < 256; i++, puts++) {
                    uint64_t index = pick(puts ^ 0x99990000);
                    overwritten_[index] = true;
                    block_.add(data_, index, 1, true);
                }
                for (auto& item : block_.items()) engine_.put(item.key, item.value);
                settle();
            }
            is_over = true;
            for (auto& thread : threads) thread.join();
            check(!has_failed, "a reader failed");
            ns_ += now_ns() - start;
            for (auto& count : counts) ops_ += count.gets;
            extra_ = ",\"puts\":" + std::to_string(puts);
        } else {
            throw Unsupported{"no reads from other threads"};
        }
    }

    // Processes that read, and one or more that write, for so long; each is this program with the phase
    // `process`. The figure is the time of a lookup or of a change, all processes together.
    void processes(uint64_t reader_count, uint64_t writer_count, uint64_t milliseconds, Beside counted) {
        if constexpr (requires { engine_.open_beside(config_, Beside::reads); }) {
            const char* writing = counted == Beside::writes_by_turns ? "turns" : "writes";
            std::vector<Child> children;
            for (uint64_t i = 0; i < reader_count + writer_count; i++) {
                const char* role = i < reader_count ? "reads" : writing;
                auto phase = std::string("process:") + role + ":" + std::to_string(i) + ":" + std::to_string(milliseconds);
                children.emplace_back(config_, phase);
            }
            for (auto& child : children) check(child.line() == "ready", "a process has failed");
            for (auto& child : children) child.start();
            uint64_t gets = 0, puts = 0, longest_ns = 0;
            for (uint64_t i = 0; i < children.size(); i++) {
                std::istringstream figures(children[i].line());
                uint64_t count = 0, ns = 0, worst_ns = 0;
                check(bool(figures >> count >> ns >> worst_ns), "a process has failed");
                longest_ns = std::max(longest_ns, ns);
                bool is_counted = (i < reader_count) == (counted == Beside::reads);
                if (is_counted) worst_ns_ = std::max(worst_ns_, worst_ns);
                if (i < reader_count) gets += count;
                else puts += count;
                for (uint64_t j = 0; i >= reader_count && j < count; j++) overwritten_[written(i, j)] = true;
            }
            ns_ += longest_ns;
            ops_ += counted == Beside::reads ? gets : puts;
            extra_ = ",\"gets\":" + std::to_string(gets) + ",\"puts\":" + std::to_string(puts);
        } else {
            throw Unsupported{"no processes beside each other"};
        }
    }

    // The record that a process writes as its j-th.
    uint64_t written(uint64_t process, uint64_t j) const { return pick(j ^ (process + 1) << 40); }

    // Such a process: opens the table, says so, begins when it is told, and says how much it has done.
    void process(const std::string& role, uint64_t number, uint64_t milliseconds) {
        if constexpr (requires { engine_.open_beside(config_, Beside::reads); }) {
            bool is_reader = role == "reads";
            Beside beside = is_reader        ? Beside::reads
                            : role == "turns" ? Beside::writes_by_turns
                                              : Beside::writes_alone;
            engine_.open_beside(config_, beside);
            puts("ready");
            fflush(stdout);
            while (getchar() != EOF) {}
            uint64_t start = now_ns(), before = start, deadline = start + milliseconds * 1'000'000, count = 0;
            Block newer;
            while (before < deadline) {
                block_.clear();
                newer.clear();
                for (size_t i = 0; i < 256; i++) {
                    uint64_t index = is_reader ? pick((count + i) ^ (number + 1) << 32) : written(number, count + i);
                    newer.add(data_, index, 1, true);
                    if (is_reader) block_.add(data_, index, 0, true);
                }
                const auto &items = newer.items(), &older = block_.items();
                before = now_ns();
                for (size_t i = 0; i < items.size() && before < deadline; i++, count++) {
                    if (is_reader) {
                        bool is_right = false;
                        engine_.get_beside(items[i].key, [&](view value) { is_right = value == items[i].value || value == older[i].value; });
                        check(is_right, "a wrong answer while one writes");
                    } else {
                        engine_.put_beside(items[i].key, items[i].value);
                    }
                    uint64_t after = now_ns();
                    worst_ns_ = std::max(worst_ns_, after - before);
                    before = after;
                }
            }
            printf("%llu %llu %llu\n", (unsigned long long)count, (unsigned long long)(now_ns() - start), (unsigned long long)worst_ns_);
            fflush(stdout);
            engine_.close();
            _exit(0);
        } else {
            throw Unsupported{"no processes beside each other"};
        }
    }

    Config config_;
    Data data_;
    bool has_checksum_;
    Engine engine_;
    Block block_;
    size_t block_records_ = 1, group_ = 1;
    std::vector<bool> overwritten_, deleted_;
    std::string expected_, extra_;
    Histogram histogram_;
    Load load_;
    uint64_t ns_ = 0, worst_ns_ = 0, ops_ = 0, checksum_ = 0, faults_ = 0, read_bytes_ = 0, start_ns_ = 0;
    // Read by nobody; the answers have to be read for it.
    uint64_t sink_ = 0;
};

inline std::vector<std::string> read_words(const std::string& path, uint64_t count) {
    std::ifstream in(path);
    check(bool(in), "the word list cannot be read");
    std::vector<std::string> words;
    for (std::string word; words.size() < count && std::getline(in, word);) {
        if (!word.empty()) words.push_back(word);
    }
    check(words.size() == count, "the word list is too short");
    return words;
}

template <class Engine>
int run(int argc, char** argv) {
    Config config;
    std::string words_path;
    std::vector<std::string> phases;
    bool has_checksum = false;
    try {
        for (int i = 1; i < argc; i++) {
            std::string word = argv[i];
            auto value = [&] {
                check(i + 1 < argc, "a value is missing");
                return std::string(argv[++i]);
            };
            if (word == "--dir") config.dir = value();
            else if (word == "--records") config.records = std::stoull(value());
            else if (word == "--key-bytes") config.key_bytes = std::stoull(value());
            else if (word == "--value-bytes") config.value_bytes = std::stoull(value());
            else if (word == "--cache-bytes") config.cache_bytes = std::stoull(value());
            else if (word == "--words") words_path = value();
            else if (word == "--checksum") has_checksum = true;
            else phases.push_back(word);
            config.has_durable_puts |= word.rfind("durable", 0) == 0;
            config.has_transactions |= word.rfind("transactions", 0) == 0;
        }
        std::vector<std::string> words;
        if (config.key_bytes == 0) words = read_words(words_path, config.records);
        Runner<Engine> runner(config, std::move(words), has_checksum);
        for (auto& phase : phases) runner.phase(phase);
        // What is still open is not closed: the process ends.
        fflush(stdout);
        _exit(0);
    } catch (const std::exception& error) {
        fflush(stdout);
        fprintf(stderr, "error: %s\n", error.what());
        _exit(1);
    }
}

}  // namespace race

// Each engine ends with `RACE_ENGINE(name, Class)`: a program of the tight driver, or what the
// dependent driver calls through its interface in C.
#ifdef RACE_C_INTERFACE
#include "c_interface.hpp"
#else
#define RACE_ENGINE(name, ...) \
    int main(int argc, char** argv) { return race::run<__VA_ARGS__>(argc, argv); }
#endif
