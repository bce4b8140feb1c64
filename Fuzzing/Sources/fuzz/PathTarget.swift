import EncryptedFile
import SodiumPrimitives

@testable import ContainerStore

extension Target {
  /// Paths, names and hexadecimal identifiers.
  static let paths = Target(
    name: "paths", inputByteCountMax: 1024,
    seeds: {
      [
        Seed("path", Array("/Documents//a/./b/../näive – 名前/".utf8)),
        Seed("hex", Array(Known.container.hex.utf8)),
        Seed("long", [UInt8](repeating: 0x61, count: FileName.byteCountMax)),
      ]
    },
    accepts: { bytes in
      let text = String(decoding: bytes, as: UTF8.self)
      if let name = FileName(bytes: bytes) {
        require(name.bytes == bytes, "a name has other bytes than were given")
        require(
          !text.utf8.elementsEqual(bytes)
            || (try? StorePath("/" + text))?.parts == [name],
          "a name is not the path that it makes")
      }
      if let identifier = Identifier(hex: text) {
        require(identifier.hex == text, "an identifier is written differently")
      }
      guard let path = try? StorePath(text) else { return false }
      let names = path.parts.compactMap { $0 }
      for name in names {
        require(FileName(bytes: name.bytes) == name, "a path has a name that cannot be")
      }
      require(
        try names.count < path.parts.count || StorePath(StorePath.text(names)).parts == path.parts,
        "a path is written differently")
      require(path.namesDirectory || text.utf8.last != UInt8(ascii: "/"), "a slash at the end is lost")
      return true
    })
}
