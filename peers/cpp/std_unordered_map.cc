// The standard library's map, with its own copies of keys and values.
#include <unordered_map>

#include "map.hpp"

struct Std {
    using Map = std::unordered_map<std::string, std::string, race::Hash<std::hash<race::view>>, std::equal_to<>>;
};

RACE_ENGINE(std_unordered_map, race::MapEngine<Std>);
