//! Keys and templates: the tables of the book are those of the code, templates run, a seeing stands for r0.

use crate::cli::{Checked, Run, said};
use lenslet::electrons::SAMPLE_KEYS;
use lenslet::files::{Keys, key_markdown, key_rows};
use lenslet::model::{SYSTEM_KEYS, System};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// The text of a chapter with its tables made anew.
fn with_tables(chapter: &str, keys: Keys) -> String {
    let rows = key_rows(keys);
    let (mut text, mut rest, mut found) = (String::new(), chapter, BTreeSet::new());
    while let Some((before, after)) = rest.split_once("<!-- keys of ") {
        let (table, after) = after.split_once(" -->").unwrap();
        let (_, after) = after.split_once("<!-- end of keys -->").unwrap();
        text += &format!(
            "{before}<!-- keys of {table} -->\n\n{}\n<!-- end of keys -->",
            key_markdown(&rows, table)
        );
        found.insert(table.to_owned());
        rest = after;
    }
    let with_keys: BTreeSet<String> = rows
        .iter()
        .filter(|row| !row.key.is_table())
        .filter_map(|row| row.path.rsplit_once('.').map(|(table, _)| table.to_owned()))
        .collect();
    assert_eq!(found, with_keys, "the chapter lacks a table");
    text + rest
}

/// Set INSTA_UPDATE=always to write the tables into the chapters.
#[test]
fn the_book_lists_the_keys_that_are_declared() {
    for (name, keys) in [("system-keys", SYSTEM_KEYS), ("sample-keys", SAMPLE_KEYS)] {
        let path = format!("book/src/{name}.md");
        let chapter = fs::read_to_string(&path).unwrap();
        let made = with_tables(&chapter, keys);
        if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
            fs::write(&path, made).unwrap();
        } else {
            assert!(
                chapter == made,
                "{path} differs from the declarations: set INSTA_UPDATE=always and run this test again"
            );
        }
        for row in key_rows(keys) {
            let chapter = format!("book/src/{}.md", row.chapter);
            assert!(fs::exists(&chapter).unwrap(), "{}: there is no {chapter}", row.path);
        }
    }
}

#[test]
fn keys_are_listed_and_chosen() -> Checked {
    let run = Run::new()?;
    let text = said(&run.lenslet("keys")?);
    let json: Value = serde_json::from_str(&said(&run.lenslet("keys --json")?))?;
    let all = json["keys"].as_array().unwrap();
    assert_eq!(all.len(), key_rows(SYSTEM_KEYS).len() + key_rows(SAMPLE_KEYS).len());
    for key in all {
        let path = key["key"].as_str().unwrap();
        let plain = !key["type"].as_str().unwrap().contains("table");
        assert!(!plain || text.contains(path), "{path}");
        assert!(!key["meaning"].as_str().unwrap().is_empty(), "{path}");
    }
    let seeing = all.iter().find(|key| key["key"] == "atmosphere.seeing").unwrap();
    assert_eq!(
        (&seeing["unit"], &seeing["minimum"], &seeing["maximum"]),
        (&"arcsec".into(), &0.05.into(), &10.0.into())
    );
    let image = said(&run.lenslet("keys image")?);
    assert!(image.contains("image.wavelengths") && !image.contains("loop.rate"));
    let sample: Value = serde_json::from_str(&said(&run.lenslet("keys sample --json")?))?;
    assert!(sample["keys"].as_array().unwrap().iter().all(|key| key["file"] == "sample"));
    run.refuses("keys imagf", &["keys = imagf", "did you mean image?"])?;
    run.refuses("keys seeing", &["did you mean atmosphere.seeing?"])
}

#[test]
fn templates_of_systems_run_as_they_are() -> Checked {
    for name in ["scao", "ltao", "mcao", "moao"] {
        let run = Run::new()?;
        let report = said(&run.lenslet(&format!("new system --like {name} -o s.toml"))?);
        assert_eq!(report, "output      s.toml\nnext        lenslet psf s.toml -o s.fits\n");
        let printed = said(&run.lenslet(&format!("new system --like {name}"))?);
        assert_eq!(fs::read_to_string(run.path("s.toml"))?, printed);
        assert!(printed.lines().filter(|line| line.contains(" # ")).count() > 15, "{name}");
        for command in ["reconstruct s.toml -o r.npz", "covariance s.toml -o c.npz"] {
            let output = run.lenslet(command)?;
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && message.is_empty(), "{name}: {command}: {message}");
        }
        let psf: Value = serde_json::from_str(&said(&run.lenslet("psf s.toml -o q.fits --json")?))?;
        let strehl = psf["targets"][0]["strehl"][0].as_f64().unwrap();
        assert!((0.2..0.9).contains(&strehl), "{name}: {strehl}");
        let info: Value = serde_json::from_str(&said(&run.lenslet("info s.toml --json")?))?;
        assert!(info["system"]["guide_stars"].as_u64().is_some(), "{name}");
        let run_into = run.names()?;
        run.refuses(
            &format!("new system --like {name} -o s.toml"),
            &["output = s.toml", "--force"],
        )?;
        assert_eq!(run.names()?, run_into);
        said(&run.lenslet("new system -o s.toml --force --quiet")?);
        assert_eq!(fs::read_to_string(run.path("s.toml"))?, said(&run.lenslet("new system")?));
    }
    Run::new()?.refuses("new system --like stem", &["like = stem", "scao, ltao, mcao, moao"])
}

#[test]
fn templates_of_samples_run_and_are_described() -> Checked {
    for (name, probes, atoms) in [("stem", Some(8), 320), ("hrtem", None, 720)] {
        let run = Run::new()?;
        said(&run.lenslet(&format!("new sample --like {name} -o s.toml"))?);
        let output = run.lenslet("stem s.toml -o s.emd")?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = said(&run.lenslet("info s.toml")?);
        for word in [
            "lenslet ",
            "sample      s.toml",
            "crystal     in the sample file",
            "wavelength",
            "memory  ",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let info: Value = serde_json::from_str(&said(&run.lenslet("info s.toml --json")?))?;
        let sample = &info["sample"];
        assert_eq!(sample["probes"][0].as_u64(), probes, "{sample}");
        assert_eq!(sample["atoms"]["Si"], atoms);
        let wavelength = if probes.is_some() { 0.037014 } else { 0.025079 };
        assert!((sample["wavelength"].as_f64().unwrap() / wavelength - 1.0).abs() < 1e-4);
        assert!(sample["memory"].as_u64().unwrap() > 0 && sample["slices"] == 40);
        if probes.is_some() {
            assert!(text.contains("annulus 50 to 80 mrad, centre of mass"), "{text}");
            assert!(sample["samples"][0].as_u64() > Some(90));
        }
        fs::write(
            run.path("bad.toml"),
            fs::read_to_string(run.path("s.toml"))?
                .replace("semi_angle", "semiangle")
                .replace("c3 ", "c33 "),
        )?;
        run.refuses("info bad.toml", &["bad.toml:", "did you mean"])?;
    }
    Ok(())
}

#[test]
fn a_crystal_inside_of_a_sample_file_has_the_lines_of_that_file() -> Checked {
    let run = Run::new()?;
    let text = said(&run.lenslet("new sample")?);
    let line = 1 + text.lines().position(|line| line.starts_with("  14  2.7150  2.7150")).unwrap();
    fs::write(run.path("s.toml"), text.replacen("  14  2.7150  2.7150", "  14  2.7150  x", 1))?;
    run.refuses("info s.toml", &[&format!("s.toml:{line}: y = x: expected a place")])?;
    fs::write(run.path("two.toml"), text.replacen("crystal =", "file = 'a.cif'\ncrystal =", 1))?;
    run.refuses("stem two.toml --plan", &["sample.crystal", "either file or crystal, not both"])?;
    fs::write(run.path("none.toml"), "[sample]\n[beam]\nenergy_kev = 100.0\n")?;
    run.refuses("stem none.toml --plan", &["none.toml:1: sample.file is missing", "or crystal"])?;
    let cif = "data_a\n_cell_length_a 4\n_cell_length_b 4\n_cell_length_c 4\n_cell_angle_alpha 90\n_cell_angle_beta 90\n_cell_angle_gamma 90\n\
        _symmetry_space_group_name_H-M 'P 1'\nloop_\n_symmetry_equiv_pos_as_xyz\nx,y,z\nloop_\n_atom_site_label\n_atom_site_type_symbol\n_atom_site_fract_x\n_atom_site_fract_y\n_atom_site_fract_z\nAu1 Au 0 0 0\n";
    fs::write(
        run.path("cif.toml"),
        format!("[beam]\nenergy_kev = 100.0\n[sample]\ncrystal = '''{cif}'''\n"),
    )?;
    let info: Value = serde_json::from_str(&said(&run.lenslet("info cif.toml --json")?))?;
    assert_eq!(info["sample"]["atoms"]["Au"], 1);
    Ok(())
}

const SEEING: &str = "[atmosphere]\nseeing = 0.7  # arcsec\nouter_scale = 25.0\nlayers = [{ altitude = 0.0, fraction = 1.0 }]\n\
    [telescope]\ndiameter = 4.0\n[lenslet_array]\nlenslets = 8\n[[guide_star]]\nnoise = 1e-15\n[[guide_star]]\nzenith = 20.0\nnoise = 1e-15\n";

#[test]
fn a_seeing_stands_for_the_fried_parameter() -> Checked {
    let seeing = System::from_toml(SEEING, "s.toml")?;
    // 0.97586 × 500 nm / (0.7 × 4.848137 µrad)
    assert!((seeing.atmosphere().fried_parameter() - 0.143_776).abs() < 1e-5);
    let at = |lines: &str| SEEING.replace("seeing = 0.7  # arcsec\n", lines);
    let longer = System::from_toml(&at("seeing = 0.7\nwavelength = 1e-6\n"), "s.toml")?;
    assert!((longer.atmosphere().fried_parameter() - 0.287_551).abs() < 1e-5);
    let r0 = format!("r0 = {}\n", seeing.atmosphere().fried_parameter());
    assert_eq!(System::from_toml(&at(&r0), "s.toml")?, seeing);
    let refused = |lines: &str| System::from_toml(&at(lines), "s.toml").unwrap_err().to_string();
    let both = refused("r0 = 0.15\nseeing = 0.7\n");
    assert_eq!(
        both,
        "s.toml:3: atmosphere.seeing = 0.7: expected either r0 or seeing, not both: remove one of them"
    );
    for bad in ["0", "-0.7", "0.04", "10.1", "3.4e-6", "inf", "nan"] {
        let message = refused(&format!("seeing = {bad}\n"));
        assert!(
            message.starts_with(&format!(
                "s.toml:2: atmosphere.seeing = {bad}: expected a full width"
            )),
            "{message}"
        );
    }
    assert!(
        refused("").contains("atmosphere.r0 is missing: expected a length in metres, or a seeing")
    );
    let slip = refused("seeing = 0.7\nwavelength = 500\n");
    assert!(
        slip.starts_with("s.toml:3: atmosphere.wavelength = 500: expected a wavelength"),
        "{slip}"
    );
    Ok(())
}

#[test]
fn a_system_with_a_seeing_is_described_and_learned() -> Checked {
    let run = Run::new()?;
    fs::write(run.path("s.toml"), SEEING)?;
    let text = said(&run.lenslet("info s.toml")?);
    assert!(text.contains("r0 = 0.143776 m at 500 nm, a seeing of 0.70 arcsec"), "{text}");
    let truth = SEEING.replace("seeing = 0.7", "r0 = 0.2");
    fs::write(run.path("truth.toml"), truth)?;
    said(&run.lenslet("simulate truth.toml -o slopes.npy --frames 4000 --seed 3 --quiet")?);
    let output = run.lenslet("learn s.toml --slopes slopes.npy --unit rad --order rows --fit strengths -o learned.toml --quiet")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let learned = fs::read_to_string(run.path("learned.toml"))?;
    let line = learned.lines().find(|line| line.starts_with("r0 = ")).unwrap();
    assert!(!learned.contains("\nseeing") && !line.contains('#'), "{learned}");
    let system = System::from_file(run.path("learned.toml"))?;
    assert!((system.atmosphere().fried_parameter() / 0.2 - 1.0).abs() < 0.05);
    // What is not learned stays as it is
    let output = run.lenslet("learn s.toml --slopes slopes.npy --unit rad --order rows --fit shifts -o other.toml --quiet")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read_to_string(run.path("other.toml"))?.contains("\nseeing = 0.7  # arcsec\n"));
    Ok(())
}
