// What the tables of tkrzw have in common.
#pragma once

#include <tkrzw_dbm.h>

#include <memory>

#include "harness.hpp"

template <class Kind>
class TkrzwEngine {
public:
    static constexpr bool persistent = Kind::persistent;
    static constexpr bool threads = true;

    void open(const race::Config& config) { dbm_ = Kind::open(config); }
    void put(race::view key, race::view value) { require(dbm_->Set(key, value), "Set"); }
    template <class F>
    bool get(race::view key, F&& found) {
        // A processor sees the value in place, which is quicker than a copy.
        Reader<F> reader(found);
        require(dbm_->Process(key, &reader, false), "Process");
        return reader.has_value;
    }
    template <class F>
    bool get_shared(race::view key, F&& found) {
        return get(key, found);
    }
    bool erase(race::view key) { return dbm_->Remove(key) == tkrzw::Status::SUCCESS; }
    template <class F>
    void scan(F&& each) {
        Scanner<F> scanner(each);
        require(dbm_->ProcessEach(&scanner, false), "ProcessEach");
    }
    void put_durable(race::view key, race::view value) {
        put(key, value);
        sync();
    }
    void sync() {
        if (persistent) require(dbm_->Synchronize(true), "Synchronize");
    }
    void close() {
        sync();
        if (persistent) require(dbm_->Close(), "Close");
    }

private:
    using Processor = tkrzw::DBM::RecordProcessor;

    template <class F>
    struct Reader : Processor {
        explicit Reader(F& found) : found(found) {}
        race::view ProcessFull(race::view, race::view value) override {
            has_value = true;
            found(value);
            return Processor::NOOP;
        }
        F& found;
        bool has_value = false;
    };
    template <class F>
    struct Scanner : Processor {
        explicit Scanner(F& each) : each(each) {}
        // A scan begins and ends with a call for no record.
        race::view ProcessFull(race::view key, race::view value) override {
            each(key, value);
            return Processor::NOOP;
        }
        F& each;
    };

    static void require(const tkrzw::Status& status, const char* what) {
        if (status != tkrzw::Status::SUCCESS) [[unlikely]] {
            race::fail(std::string("tkrzw: ") + what + ": " + std::string(status));
        }
    }

    std::unique_ptr<typename Kind::Dbm> dbm_;
};
