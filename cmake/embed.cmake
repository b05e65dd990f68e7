# Writes OUTPUT, a C++ source with the FILES (path=file, separated by "|") as arrays, and the FUNCTION of NAMESPACE that finds
# one by path (common/base/page_file.h), as HEADER declares it. Run with cmake -P.
set(types html text/html css text/css js text/javascript svg image/svg+xml)  # all in UTF-8
set(bodies "")
set(entries "")
set(number 0)
string(REPLACE "|" ";" FILES "${FILES}")
foreach(entry ${FILES})
  string(REGEX MATCH "^([^=]+)=(.+)$" _ "${entry}")
  set(path ${CMAKE_MATCH_1})
  set(file ${CMAKE_MATCH_2})
  get_filename_component(extension ${file} LAST_EXT)
  string(SUBSTRING ${extension} 1 -1 extension)
  list(FIND types ${extension} at)
  math(EXPR at "${at} + 1")
  list(GET types ${at} type)
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" length)
  math(EXPR bytes "${length} / 2")
  string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
  string(APPEND bodies "const unsigned char kBody${number}[] = {${hex}0};\n")
  string(APPEND entries "    {\"${path}\", \"${type}; charset=utf-8\", {reinterpret_cast<const char*>(kBody${number}), ${bytes}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace ${NAMESPACE} {
namespace {

${bodies}
const PageFile kPageFiles[] = {
${entries}};

}  // namespace

const PageFile* ${FUNCTION}(absl::string_view path) {
  for (const PageFile& file : kPageFiles) {
    if (path == file.path) return &file;
  }
  return nullptr;
}

}  // namespace ${NAMESPACE}
")
