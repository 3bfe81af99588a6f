#include "search/segment.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace pixnar {

Levels::Levels(const DocidTable& table, const Floor& floor, uint32_t slots, const Workers& workers) {
    const auto& classes = table.classes();
    scales_.resize(classes.size());
    const uint32_t places = std::min(table.indexed_places(), slots);
    if (table.indexed() && table.rows() >= worth_near) find_near(table, places, workers);
    if (floor.strict()) return;
    level_.resize(table.rows());
    constexpr uint32_t slice = 1 << 14;
    struct Part {
        size_t of_class;
        uint32_t from, to;
        double least, most;
    };
    std::vector<Part> parts;
    for (size_t c = 0; c < classes.size(); ++c)
        for (uint64_t from = classes[c].begin; from < classes[c].end; from += slice)
            parts.push_back({c, static_cast<uint32_t>(from),
                             static_cast<uint32_t>(std::min<uint64_t>(classes[c].end, from + slice)), 0, 0});
    auto base_of = [&](const LengthClass& in, uint32_t row) {
        double sum = 0;
        for (uint32_t t = 0; t < std::min(in.length, slots); ++t) {
            const uint32_t token = table.token(in, row, t);
            sum += token < floor.values.size() ? floor.base(token) : floor.most;
        }
        return sum;
    };
    workers.run(parts.size(), [&](size_t i, unsigned) {
        Part& part = parts[i];
        const LengthClass& in = classes[part.of_class];
        for (uint32_t row = part.from; row < part.to; ++row) {
            const double base = base_of(in, row);
            part.least = row == part.from ? base : std::min(part.least, base);
            part.most = row == part.from ? base : std::max(part.most, base);
        }
    });
    std::vector<bool> seen(classes.size());
    for (const Part& part : parts) {
        Scale& scale = scales_[part.of_class];
        scale.low = seen[part.of_class] ? std::min(scale.low, part.least) : part.least;
        scale.most = seen[part.of_class] ? std::max(scale.most, part.most) : part.most;
        seen[part.of_class] = true;
    }
    for (Scale& scale : scales_) scale.step = (scale.most - scale.low) / 255 * (1 + 1e-9);
    workers.run(parts.size(), [&](size_t i, unsigned) {
        const Part& part = parts[i];
        const LengthClass& in = classes[part.of_class];
        const Scale& scale = scales_[part.of_class];
        for (uint32_t row = part.from; row < part.to; ++row) {
            const double base = base_of(in, row);
            const double level = scale.step > 0 ? std::ceil((base - scale.low) / scale.step) : 0;
            level_[row] = static_cast<uint8_t>(std::min(level, 255.0));
        }
    });
    if (!table.indexed()) return;
    posted_.resize(places - 1);
    for (uint32_t place = 1; place <= posted_.size(); ++place) {
        auto& posted = posted_[place - 1];
        posted.resize(table.postings(place));
        workers.run((posted.size() + slice - 1) / slice, [&](size_t item, unsigned) {
            for (uint64_t i = item * slice, end = std::min<uint64_t>(posted.size(), i + slice); i < end; ++i)
                posted[i] = level_[table.posting(place, i)];
        });
    }
}

void Levels::find_near(const DocidTable& table, uint32_t places, const Workers& workers) {
    constexpr uint64_t slice = 1 << 14;
    knows_near_ = true;
    near_.resize(places);
    for (uint32_t place = 0; place < places; ++place) {
        auto& near = near_[place];
        near.resize(place == 0 ? table.rows() : table.postings(place));
        workers.run((near.size() + slice - 1) / slice, [&](size_t item, unsigned) {
            for (uint64_t i = item * slice, end = std::min<uint64_t>(near.size(), i + slice); i < end; ++i) {
                const uint32_t row = place == 0 ? static_cast<uint32_t>(i) : table.posting(place, i);
                const LengthClass& in = table.class_of(row);
                if (in.length > near_place(place)) near[i] = token_hash(table.token(in, row, near_place(place)));
            }
        });
    }
}

unsigned Levels::least(size_t of_class, double wanted) const {
    const Scale& scale = scales_[of_class];
    if (!(wanted > scale.low)) return 0;
    if (wanted > scale.most + scale.step) return 256;
    if (!(scale.step > 0)) return 0;
    const double level = std::floor((wanted - scale.low) / scale.step);  // a little generous
    return static_cast<unsigned>(std::min(level, 255.0));
}

Factors::Factors(const DocidTable& table, std::span<const uint8_t> classes, std::span<const float> values)
    : classes_(classes), ranges_(table.classes().size()) {
    if (classes.size() != table.rows() || values.size() != kinds)
        throw std::invalid_argument("factors: " + std::to_string(classes.size()) + " classes and " +
                                    std::to_string(values.size()) + " values for " + std::to_string(table.rows()) +
                                    " docids: give a class for each docid and " + std::to_string(kinds) + " values");
    for (size_t i = 0; i < kinds; ++i) {
        if (!std::isfinite(values[i]) || !(values[i] > 0))
            throw std::invalid_argument("a factor is " + std::to_string(values[i]) + ": give finite numbers above 0");
        values_[i] = values[i];
        inverses_[i] = 1 / values_[i];
    }
    for (size_t c = 0; c < ranges_.size(); ++c) {
        bool used[kinds] = {};
        const LengthClass& in = table.classes()[c];
        for (uint32_t row = in.begin; row < in.end; ++row) used[classes_[row]] = true;
        bool any = false;
        for (size_t i = 0; i < kinds; ++i) {
            if (!used[i]) continue;
            ranges_[c].least = any ? std::min(ranges_[c].least, values_[i]) : values_[i];
            ranges_[c].most = any ? std::max(ranges_[c].most, values_[i]) : values_[i];
            any = true;
        }
    }
}

double Factors::most() const {
    double most = 1;
    for (const Range& range : ranges_) most = std::max(most, range.most);
    return most;
}

int SearchSpace::compare(Place a, Place b) const {
    if (a == b) return 0;
    const DocidTable &left = *segments[a.segment].table, &right = *segments[b.segment].table;
    const LengthClass &in_left = left.class_of(a.row), &in_right = right.class_of(b.row);
    for (uint32_t t = 0; t < in_left.length && t < in_right.length; ++t) {
        const uint32_t x = left.token(in_left, a.row, t), y = right.token(in_right, b.row, t);
        if (x != y) return x < y ? -1 : 1;
    }
    return in_left.length == in_right.length ? 0 : in_left.length < in_right.length ? -1 : 1;
}

bool SearchSpace::names_any(Place place) const {
    const Segment& in = segments[place.segment];
    const auto [from, to] = in.table->pairs_of(place.row);
    for (uint64_t pair = from; pair < to; ++pair)
        if (in.alive(pair) && allows(in.document(pair))) return true;
    return false;
}

std::vector<uint32_t> SearchSpace::named(Place place) const {
    std::vector<uint32_t> found;
    auto gather = [&](Place at) {
        const Segment& in = segments[at.segment];
        const auto [from, to] = in.table->pairs_of(at.row);
        for (uint64_t pair = from; pair < to; ++pair)
            if (in.alive(pair) && allows(in.document(pair))) found.push_back(in.document(pair));
    };
    gather(place);
    if (segments.size() > 1) {
        const Segment& later = segments[1];
        if (place.segment == 1) {
            if (later.twins[place.row] != Segment::no_twin) gather({0, later.twins[place.row]});
        } else if (later.table->rows() > 0) {
            const uint32_t twin = later.table->find(segments[0].table->tokens(place.row));
            if (twin < later.table->rows()) gather({1, twin});
        }
    }
    std::sort(found.begin(), found.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

bool SearchSpace::pair_alive(const Segment& in, uint32_t row, uint32_t local) const {
    auto [from, to] = in.table->pairs_of(row);
    while (from < to) {
        const uint64_t middle = (from + to) / 2;
        const uint32_t found = in.table->pair_document(middle);
        if (found == local) return in.alive(middle);
        if (found < local) from = middle + 1;
        else to = middle;
    }
    return false;
}

}  // namespace pixnar
